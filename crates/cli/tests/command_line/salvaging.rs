//! What is had out of a state directory that is damaged.

use crate::program::farfs;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A state directory of which little is left: two files in the cache.
fn remains(state: &Path) {
    for (fan, name) in [("07", "0000000000000007.0"), ("08", "0000000000000008.0")] {
        let fan = state.join("cache").join(fan);
        fs::create_dir_all(&fan).unwrap();
        fs::write(fan.join(name), name).unwrap();
    }
    fs::create_dir(state.join("log")).unwrap();
}

#[test]
fn what_can_be_read_is_copied_whatever_stands_in_the_place_of_directories() {
    for (place, kind, left) in [
        ("cache/08", "link", true),
        ("cache/08", "file", true),
        ("cache", "link", false),
        ("cache", "file", false),
        ("log", "link", true),
        ("log", "file", true),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let [state, out] = ["state", "out"].map(|name| directory.path().join(name));
        fs::create_dir(&state).unwrap();
        remains(&state);
        let path = state.join(place);
        fs::remove_dir_all(&path).unwrap();
        match kind {
            "link" => symlink("nowhere", &path).unwrap(),
            _ => fs::write(&path, "mine").unwrap(),
        }
        let ran = farfs(&["salvage", state.to_str().unwrap(), out.to_str().unwrap()]);
        let case = format!("{place}: {kind}: {ran:?}");
        let named = format!("{}: it is a", path.display());
        assert_eq!(ran.out.matches(&named).count(), 1, "{case}");
        assert_eq!(fs::read(out.join("unnamed/7")).is_ok(), left, "{case}");
        ran.fails_with(6);
        assert!(fs::symlink_metadata(&path).is_ok_and(|found| !found.is_dir()), "{case}");
    }
}
