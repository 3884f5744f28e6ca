//! Conflicts in a directory that an ordinary user may not search.

use super::{SOON, Scene};
use e2e::machine::Machine;
use e2e::process::Ran;
use e2e::world::program;
use e2e::{eventually, run};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

const HIDDEN: &str = "what is in /notes is not told to a user who may not search it";

/// An ordinary user of another machine, with a mount of his own.
struct User {
    machine: Machine,
    home: std::path::PathBuf,
}

impl User {
    fn of(scene: &Scene) -> User {
        let (machine, home) = (Machine::new(&scene.world), Machine::home(&scene.world));
        let user = User { machine, home };
        user.farfs(&format!("mount '{}' {}", scene.server.invite(), user.work())).succeeds();
        user
    }

    fn work(&self) -> String {
        self.home.join("work").display().to_string()
    }

    fn farfs(&self, line: &str) -> Ran {
        self.machine.shell(&self.home, &format!("{} {line}", program().display()))
    }

    fn conflicts(&self, line: &str) -> Ran {
        self.farfs(&format!("conflicts {line} --in {}", self.work()))
    }

    fn is_refused(&self, line: &str) {
        let told = self.conflicts(line);
        assert_eq!(told.code, Some(1), "{line}: {} {}", told.out, told.err);
        assert!(told.err.contains(HIDDEN), "{line}: {}", told.err);
        assert!(!(told.out + &told.err).contains("plan"), "{line}");
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // The world ends what is left.
        let _ = self.farfs(&format!("umount {}", self.work()));
    }
}

fn set_mode(scene: &Scene, mode: u32) {
    fs::set_permissions(scene.ada.path("notes"), Permissions::from_mode(mode)).unwrap();
    run(&mut scene.ada.farfs("wait", &[])).succeeds();
}

#[test]
fn who_may_not_search_a_directory_is_told_nothing_of_a_conflict_in_it_and_sees_to_none() {
    let (by_ada, by_bob) = ("one by ada\n", "one by bob\n");
    let scene = Scene::new(by_ada, by_bob);
    set_mode(&scene, 0o700);
    let user = User::of(&scene);
    let refused = user.machine.shell(&user.home, &format!("ls {}/notes", user.work()));
    assert!(refused.err.contains("Permission denied"), "{refused:#?}");
    let list = user.farfs(&format!("conflicts {}", user.work())).succeeds();
    assert_eq!(list, "not shown, as they are in directories that you may not search: 1\n");
    let json = user.farfs(&format!("conflicts --json {}", user.work()));
    assert_eq!((json.code, json.out.trim()), (Some(0), "[]"));
    assert!(json.err.contains("not shown"), "{}", json.err);
    let ways = ["show", "diff", "merge", "keep-mine", "keep-theirs", "keep-both"];
    ways.iter().for_each(|way| user.is_refused(&format!("{way} 1")));
    let all = user.conflicts("merge --all");
    assert_eq!(all.code, Some(1), "{} {}", all.out, all.err);
    assert!(all.out.contains("not shown") && !all.out.contains("plan"), "{}", all.out);
    scene.is_as_before(by_ada, by_bob);

    // Nor does he take back what was done there.
    scene.does("keep-theirs", &[]).succeeds();
    user.is_refused("undo 1");
    user.is_refused("undo 1 --force");
    let last = user.conflicts("undo");
    assert!(last.err.contains("no conflict has been seen to"), "{} {}", last.out, last.err);
    scene.settled(by_ada);
    run(&mut scene.conflicts(&["undo", "--in", &scene.place()])).succeeds();
    scene.is_as_before(by_ada, by_bob);

    // Without a link it is as it was told to him.
    user.farfs(&format!("conflicts {}", user.work())).succeeds();
    user.farfs(&format!("mode {} disconnected", user.work())).succeeds();
    let list = user.farfs(&format!("conflicts {}", user.work()));
    assert!(list.code == Some(3) && list.out.starts_with("not shown"), "{} {}", list.out, list.err);
    user.farfs(&format!("mode {} partial", user.work())).succeeds();

    // Who may search it is told of all.
    set_mode(&scene, 0o755);
    eventually(SOON, "he is told", || {
        let told = user.conflicts("show 1");
        told.code == Some(0) && told.out.contains("notes/plan.txt, ")
    });
    user.conflicts("keep-both 1").succeeds();
    assert!(scene.listed().as_array().unwrap().is_empty());
}
