//! Git, which makes, renames, links and maps files, and checks all of it.

use crate::{in_both_modes, same_on_another_device, shell};
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
