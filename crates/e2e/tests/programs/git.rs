//! Git, which makes, renames, links and maps files, and checks all of it.

use crate::{BOUND, in_both_modes, same_on_another_device, shell};
use e2e::World;
use std::path::Path;

/// A repository outside the volume, with some history.
fn origin(folder: &Path) {
    git(
        folder,
        "git init -q -b main . && mkdir src && for commit in 1 2 3 4; do
           for file in $(seq 1 15); do
             seq $((commit * file)) $((commit * 400 + file)) > src/file-$file.txt
           done
           ln -sf src/file-$commit.txt newest && git add -A && git commit -qm \"change $commit\"
         done",
    );
}

/// With nothing of the user's.
#[track_caller]
fn git(folder: &Path, line: &str) -> String {
    let settings = "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null \
                    GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a \
                    GIT_COMMITTER_EMAIL=a@b GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=gc.auto \
                    GIT_CONFIG_VALUE_0=0; ";
    shell(folder, &format!("{settings}{line}"))
}

#[test]
fn git_clones_commits_collects_and_finds_nothing_wrong() {
    in_both_modes(|world, server, mount| {
        let outside = world.folder("outside");
        origin(&outside);
        let url = outside.display();
        git(&mount.mountpoint, &format!("git clone -q --no-local {url} copy"));
        let copy = mount.path("copy");
        assert_eq!(git(&copy, "git status --porcelain"), "");
        git(
            &copy,
            "git checkout -qb topic && echo more >> src/file-1.txt && git mv src/file-2.txt moved \
             && git rm -q src/file-3.txt && git add -A && git commit -qm topic \
             && git checkout -q main && echo other > new && git add new && git commit -qm other \
             && git merge -q -m merged topic && git stash list && git tag v1",
        );
        assert_eq!(git(&copy, "git status --porcelain"), "");
        git(&copy, "git gc -q --prune=now && git fsck --full --strict 2>&1");
        assert_eq!(git(&copy, "git log --oneline | wc -l").trim(), "7");
        let other = same_on_another_device(world, server, mount);
        // The index holds inode numbers and times: they are the same there, so nothing is read.
        assert_eq!(git(&other.path("copy"), "git -c safe.directory='*' status --porcelain"), "");
        git(&other.path("copy"), "git -c safe.directory='*' fsck --full 2>&1");
    });
}

#[test]
fn a_clone_within_the_volume_shares_its_objects_by_links() {
    in_both_modes(|_, _, mount| {
        std::fs::create_dir(mount.path("one")).unwrap();
        origin(&mount.path("one"));
        git(&mount.mountpoint, "git clone -q one two && cd two && git fsck --full");
        let pushed = "cd two && git checkout -qb work && echo x > y && git add y \
                      && git commit -qm y && git push -q origin work";
        git(&mount.mountpoint, pushed);
        assert_eq!(git(&mount.path("one"), "git show work:y"), "x\n");
    });
}

#[test]
fn git_status_on_another_device_opens_no_file_of_the_tree() {
    let world = World::bounded(2 * BOUND);
    let server = world.server();
    let first = world.mount(&server, "first", "connected");
    let write = "git init -q -b main . && mkdir src && for file in 1 2 3 4 5 6 7 8; do
                   seq $file 20000 > src/$file
                 done";
    git(&first.mountpoint, &format!("mkdir tree && cd tree && {write}"));
    // Git reads again what is not older than its index by a second.
    let commit = "sleep 1.1 && git add -A && git commit -qm all && git status --porcelain";
    assert_eq!(git(&first.path("tree"), commit), "");
    first.wait();
    let other = world.mount(&server, "other", "connected");
    let status = "git -c safe.directory='*' status --porcelain";
    assert_eq!(git(&other.path("tree"), status), "");
    let cached = |name: &str| {
        let path = other.path(format!("tree/src/{name}"));
        let mut value = [0; 20];
        let length = rustix::fs::getxattr(path, "user.farfs.cached", &mut value).unwrap();
        String::from_utf8(value[..length].to_vec()).unwrap()
    };
    for name in ["1", "2", "3", "4", "5", "6", "7", "8"] {
        assert_eq!(cached(name), "0", "{name} was not opened");
    }
    std::fs::write(first.path("tree/src/3"), "changed\n").unwrap();
    first.wait();
    assert_eq!(git(&other.path("tree"), status), " M src/3\n");
    assert_eq!(cached("4"), "0");
}
