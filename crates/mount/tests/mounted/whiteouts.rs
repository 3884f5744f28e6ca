use crate::needs_fuse;
use crate::support::{Farm, is_root};
use mount::MountOptions;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::Command;

fn is_whiteout(path: &Path) -> bool {
    let seen = fs::symlink_metadata(path).unwrap();
    seen.file_type().is_char_device() && seen.rdev() == 0 && seen.mode() & 0o7777 == 0
}

#[test]
fn what_is_moved_leaves_a_whiteout_if_that_is_asked_for_here_and_elsewhere() {
    needs_fuse!();
    let farm = Farm::new();
    let (one, other) =
        (farm.machine("one", MountOptions::default()), farm.machine("other", Default::default()));
    fs::write(one.path("a"), "text").unwrap();
    fs::write(one.path("b"), "replaced").unwrap();
    fs::create_dir(one.path("d")).unwrap();
    fs::write(one.path("d/c"), "stays").unwrap();
    assert!(fs::metadata(other.path("a")).is_ok());
    let moved = |from: &str, to: &str, flags| {
        renameat_with(CWD, one.path(from), CWD, one.path(to), RenameFlags::WHITEOUT | flags)
    };
    let free = RenameFlags::NOREPLACE;
    assert_eq!(moved("a", "d/c", free), Err(rustix::io::Errno::EXIST));
    moved("a", "b", RenameFlags::empty()).unwrap();
    moved("d", "e", free).unwrap();
    for machine in [&one, &other] {
        assert!(is_whiteout(&machine.path("a")) && is_whiteout(&machine.path("d")));
        assert_eq!(fs::read(machine.path("b")).unwrap(), b"text");
        assert_eq!(fs::read(machine.path("e/c")).unwrap(), b"stays");
        let mut names: Vec<_> = fs::read_dir(machine.path(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["a", "b", "d", "e"]);
    }
    fs::remove_file(one.path("a")).unwrap();
    assert!(!fs::exists(other.path("a")).unwrap());
}

/// In a mount table of its own, so that nothing is left mounted.
const OVERLAY: &str = "
    mount -t overlay overlay -o lowerdir=$1,upperdir=$2/upper,workdir=$2/work $3
    echo changed > $3/file
    rm $3/removed
    mv $3/moved $3/folder/here
    mkdir $3/made
    echo new > $3/made/new
    cat $3/file $3/folder/here $3/made/new
    test ! -e $3/removed && test ! -e $3/moved
    umount $3
";

#[test]
fn an_overlay_can_lie_on_it() {
    needs_fuse!();
    if !is_root() {
        return;
    }
    let farm = Farm::new();
    let machine = farm.machine("one", MountOptions::default());
    let (lower, merged) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for name in ["file", "removed", "moved"] {
        fs::write(lower.path().join(name), format!("{name}\n")).unwrap();
    }
    fs::create_dir(lower.path().join("folder")).unwrap();
    fs::create_dir(machine.path("upper")).unwrap();
    fs::create_dir(machine.path("work")).unwrap();
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-ec", OVERLAY, "overlay"]);
    shell.args([lower.path(), &machine.path(""), merged.path()]);
    let done = shell.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    assert_eq!(String::from_utf8_lossy(&done.stdout), "changed\nmoved\nnew\n");
    for name in ["removed", "moved"] {
        assert!(is_whiteout(&machine.path("upper").join(name)), "{name}");
        assert!(lower.path().join(name).exists());
    }
}
