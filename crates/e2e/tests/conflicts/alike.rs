//! Two files that say the same, which two machines made under one name: there is nothing to choose.

use super::{SOON, Scene};
use e2e::{eventually, run};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// No text, and larger than what is read at once.
fn bytes() -> Vec<u8> {
    (0..3_000_000_u32).map(|at| (at % 251) as u8).collect()
}

fn makes(bytes: Vec<u8>, mode: u32) -> impl FnOnce(&Path) {
    move |file| {
        let file = file.with_file_name("new");
        fs::write(&file, bytes).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    }
}

fn names(scene: &Scene) -> usize {
    fs::read_dir(scene.ada.path("notes")).unwrap().count()
}

#[test]
fn of_two_that_say_the_same_one_is_left_and_that_can_be_taken_back() {
    let scene = Scene::of(makes(bytes(), 0o640), makes(bytes(), 0o640));
    let place = scene.place();
    let all = run(&mut scene.conflicts(&["merge", "--all", "--in", &place])).succeeds();
    assert_eq!(all, "1  merged\n");
    for mount in [&scene.ada, &scene.bob] {
        eventually(SOON, "one is left", || fs::read_dir(mount.path("notes")).unwrap().count() == 2);
        assert!(fs::read(mount.path("notes/new")).unwrap() == bytes());
    }
    assert_eq!(scene.listed(), serde_json::json!([]));
    run(&mut scene.conflicts(&["undo", "1", "--in", &place])).succeeds();
    let beside = scene.listed()[0]["aside"].as_str().unwrap().to_owned();
    eventually(SOON, "the other is back", || scene.ada.path(&beside).exists());
    assert!(fs::read(scene.ada.path(&beside)).unwrap() == bytes());
}

#[test]
fn two_that_differ_in_anything_are_left() {
    let mut other = bytes();
    *other.last_mut().unwrap() ^= 1;
    for (by_bob, mode) in [(other, 0o640), (bytes(), 0o600)] {
        let scene = Scene::of(makes(bytes(), 0o640), makes(by_bob, mode));
        let refused = scene.does("merge", &[]);
        assert_eq!(refused.code, Some(1), "{}", refused.err);
        assert!(refused.err.contains("only a program can merge"), "{}", refused.err);
        let place = scene.place();
        let all = run(&mut scene.conflicts(&["merge", "--all", "--in", &place]));
        assert_eq!(all.code, Some(1), "{}", all.out);
        assert_eq!((names(&scene), scene.listed()[0]["number"].as_u64()), (3, Some(1)));
    }
}
