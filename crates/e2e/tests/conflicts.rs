//! Conflicts as who has one sees to it: listed, looked at, merged, one side kept or both.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

#[path = "conflicts/alike.rs"]
mod alike;
#[path = "conflicts/both_made.rs"]
mod both_made;
#[path = "conflicts/brought_back.rs"]
mod brought_back;
#[path = "conflicts/links.rs"]
mod links;
#[path = "conflicts/private.rs"]
mod private;
#[path = "conflicts/saved.rs"]
mod saved;

use e2e::{Mount, Server, World, eventually, run};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_secs(30);
const BASE: &str = "one\ntwo\nthree\nfour\n";

/// Ada and bob have changed one file without knowing of each other; bob came second.
struct Scene {
    ada: Mount,
    bob: Mount,
    server: Server,
    world: World,
}

impl Scene {
    fn new(by_ada: &str, by_bob: &str) -> Scene {
        Scene::of(|file| fs::write(file, by_ada).unwrap(), |file| fs::write(file, by_bob).unwrap())
    }

    fn of(by_ada: impl FnOnce(&Path), by_bob: impl FnOnce(&Path)) -> Scene {
        let world = World::bounded(120 * SECOND);
        let server = world.server();
        let ada = world.mount(&server, "ada", "partial");
        let bob = world.mount(&server, "bob", "partial");
        fs::create_dir(ada.path("notes")).unwrap();
        fs::write(ada.path("notes/plan.txt"), BASE).unwrap();
        run(&mut ada.farfs("wait", &[])).succeeds();
        eventually(SOON, "bob reads it", || {
            fs::read_to_string(bob.path("notes/plan.txt")).is_ok_and(|read| read == BASE)
        });
        run(&mut bob.farfs("mode", &["disconnected"])).succeeds();
        by_ada(&ada.path("notes/plan.txt"));
        run(&mut ada.farfs("wait", &[])).succeeds();
        by_bob(&bob.path("notes/plan.txt"));
        run(&mut bob.farfs("mode", &["partial"])).succeeds();
        run(&mut bob.farfs("wait", &[])).succeeds();
        Scene { ada, bob, server, world }
    }

    /// Both names are there again, with what each had.
    fn is_as_before(&self, by_ada: &str, by_bob: &str) {
        let listed = self.listed();
        assert_eq!(listed[0]["number"], 1, "{listed}");
        let texts = ["path", "aside"].map(|side| {
            let path = self.ada.path(listed[0][side].as_str().unwrap());
            eventually(SOON, "it is back", || path.exists());
            fs::read_to_string(path).unwrap()
        });
        assert_eq!(texts, [by_ada, by_bob]);
    }

    fn listed(&self) -> Value {
        let text = run(&mut self.conflicts(&["list", "--json", &self.place()])).succeeds();
        serde_json::from_str(&text).unwrap()
    }

    fn place(&self) -> String {
        self.ada.mountpoint.display().to_string()
    }

    fn conflicts(&self, arguments: &[&str]) -> std::process::Command {
        e2e::world::farfs(&[&["conflicts"][..], arguments].concat())
    }

    /// `farfs conflicts WHAT 1 --in ADA ...`
    fn does(&self, what: &str, more: &[&str]) -> e2e::process::Ran {
        let place = self.place();
        run(&mut self.conflicts(&[&[what, "1", "--in", &place][..], more].concat()))
    }

    /// Everywhere the file is this, and it alone is there.
    fn settled(&self, text: &str) {
        assert_eq!(self.listed(), Value::Array(Vec::new()));
        for mount in [&self.ada, &self.bob] {
            eventually(SOON, "everybody sees it", || {
                let names = fs::read_dir(mount.path("notes")).unwrap().count();
                let read = fs::read_to_string(mount.path("notes/plan.txt"));
                names == 1 && read.is_ok_and(|read| read == text)
            });
        }
    }
}

#[test]
fn what_two_changed_in_different_lines_is_shown_and_merged() {
    let scene = Scene::new("ONE\ntwo\nthree\nfour\n", "one\ntwo\nthree\nFOUR\n");
    let listed = scene.listed();
    assert_eq!(listed[0]["number"], 1);
    assert_eq!(listed[0]["kind"], "contents");
    assert_eq!(listed[0]["path"], "notes/plan.txt");
    assert!(
        listed[0]["aside"].as_str().unwrap().starts_with("notes/plan (conflict of"),
        "{listed}"
    );
    let shown = scene.does("show", &[]).succeeds();
    assert!(shown.contains("keep-theirs 1") && shown.contains("plan.txt@v"), "{shown}");
    let diff = scene.does("diff", &[]).succeeds();
    assert!(diff.contains("-ONE\n+one\n") && diff.contains("+FOUR\n"), "{diff}");
    let file = scene.ada.path("notes/plan.txt");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let before = fs::metadata(&file).unwrap();
    scene.does("merge", &[]).succeeds();
    let after = fs::metadata(&file).unwrap();
    assert_eq!((after.ino(), after.mode()), (before.ino(), before.mode()));
    scene.settled("ONE\ntwo\nthree\nFOUR\n");
    // Somebody has seen to it.
    let again = scene.does("keep-mine", &[]);
    assert_eq!(again.code, Some(7), "{}", again.err);
}

/// As most editors save.
fn save_by_rename(text: &'static str) -> impl FnOnce(&Path) {
    move |file| {
        let beside = file.with_extension("new");
        fs::write(&beside, text).unwrap();
        fs::rename(&beside, file).unwrap();
    }
}

#[test]
fn what_two_saved_by_rename_is_merged_upon_what_both_began_from() {
    let (one, four) = ("ONE\ntwo\nthree\nfour\n", "one\ntwo\nthree\nFOUR\n");
    let in_place = |text: &'static str| move |file: &Path| fs::write(file, text).unwrap();
    let twice = |file: &Path| {
        save_by_rename("one\ntwo\nthree\nf\n")(file);
        save_by_rename(four)(file);
    };
    let scenes = [
        Scene::of(save_by_rename(one), save_by_rename(four)),
        Scene::of(in_place(one), save_by_rename(four)),
        Scene::of(save_by_rename(one), in_place(four)),
        Scene::of(save_by_rename(one), twice),
    ];
    for scene in scenes {
        let listed = scene.listed();
        assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
        assert_eq!(listed[0]["base_bytes"], BASE.len(), "{listed}");
        let shown = scene.does("show", &[]).succeeds();
        assert!(shown.contains("plan.txt@v"), "{shown}");
        scene.does("merge", &[]).succeeds();
        scene.settled("ONE\ntwo\nthree\nFOUR\n");
    }
}

#[test]
fn who_saves_by_rename_again_and_again_without_a_link_meets_nobody_who_changed_nothing() {
    let saves = |file: &Path| {
        for text in ["1\n", "2\n", "3\n"] {
            save_by_rename(text)(file);
        }
    };
    Scene::of(|_| (), saves).settled("3\n");
    let removes = |file: &Path| {
        saves(file);
        fs::remove_file(file).unwrap();
        fs::write(file, "4\n").unwrap();
    };
    Scene::of(|_| (), removes).settled("4\n");
}

#[test]
fn what_lies_beside_may_be_edited_before_both_are_merged() {
    let scene = Scene::of(
        save_by_rename("ONE\ntwo\nthree\nfour\n"),
        save_by_rename("one\ntwo\nthree\n4\n"),
    );
    let aside = scene.listed()[0]["aside"].as_str().unwrap().to_owned();
    save_by_rename("one\ntwo\nthree\nFOUR\n")(&scene.bob.path(&aside));
    run(&mut scene.bob.farfs("wait", &[])).succeeds();
    assert_eq!(scene.listed()[0]["aside"], aside.as_str());
    scene.does("merge", &[]).succeeds();
    scene.settled("ONE\ntwo\nthree\nFOUR\n");
}

#[test]
fn what_two_changed_in_the_same_line_is_merged_by_a_program_or_between_marks() {
    let scene = Scene::new("ONE\ntwo\nthree\nfour\n", "eins\ntwo\nthree\nfour\n");
    let refused = scene.does("merge", &[]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("--markers"), "{}", refused.err);
    assert_eq!(scene.listed()[0]["number"], 1, "nothing was done");
    assert_eq!(fs::read_dir(scene.ada.path("notes")).unwrap().count(), 2);
    let failed = scene.does("merge", &["--tool", "false"]);
    assert_eq!(failed.code, Some(1));
    scene.does("merge", &["--tool", "cp %mine %out"]).succeeds();
    scene.settled("eins\ntwo\nthree\nfour\n");
}

#[test]
fn one_side_is_kept_and_the_other_stays_among_the_versions() {
    let scene = Scene::new("by ada\n", "by bob\n");
    fs::write(scene.ada.path("notes/plan.txt"), "by ada, later\n").unwrap();
    let refused = scene.does("keep-mine", &[]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("--force"), "{}", refused.err);
    scene.does("keep-mine", &["--force"]).succeeds();
    scene.settled("by bob\n");
    let path = scene.ada.path("notes/plan.txt").display().to_string();
    let text = run(&mut e2e::world::farfs(&["history", "--json", &path])).succeeds();
    let history: Value = serde_json::from_str(&text).unwrap();
    let versions: Vec<&str> =
        history.as_array().unwrap().iter().filter_map(|one| one["version"].as_str()).collect();
    // One of them is ada's, which comes back.
    let back = versions.iter().any(|version| {
        let what = format!("{path}@{version}");
        run(&mut e2e::world::farfs(&["restore", &what]));
        fs::read_to_string(&path).is_ok_and(|read| read == "by ada\n")
    });
    assert!(back, "{text}");
}

#[test]
fn the_side_with_the_name_or_both_are_kept() {
    let scene = Scene::new("by ada\n", "by bob\n");
    scene.does("keep-theirs", &[]).succeeds();
    scene.settled("by ada\n");
    let scene = Scene::new("by ada\n", "by bob\n");
    scene.does("keep-both", &[]).succeeds();
    assert_eq!(scene.listed(), Value::Array(Vec::new()));
    assert_eq!(fs::read_dir(scene.ada.path("notes")).unwrap().count(), 2);
}

/// Nothing lies beside: the name has the contents, or it is gone after all.
#[test]
fn of_a_removal_and_contents_one_is_chosen_and_the_choice_is_taken_back() {
    let removed = |file: &Path| fs::remove_file(file).unwrap();
    let stored = |file: &Path| fs::write(file, "changed\n").unwrap();
    for (scene, removes, stays) in [
        (Scene::of(stored, removed), "keep-mine", "keep-theirs"),
        (Scene::of(removed, stored), "keep-theirs", "keep-mine"),
    ] {
        let files = [&scene.ada, &scene.bob].map(|mount| mount.path("notes/plan.txt"));
        let all_read = || {
            let reads = |file: &PathBuf| fs::read_to_string(file).is_ok_and(|r| r == "changed\n");
            eventually(SOON, "it is there", || files.iter().all(reads));
        };
        let undo = || run(&mut scene.conflicts(&["undo", "--in", &scene.place()])).succeeds();
        all_read();
        let shown = scene.does("show", &[]).succeeds();
        assert!(shown.contains("keep-mine 1, keep-theirs 1, keep-both 1\n"), "{shown}");
        let removed_by = if removes == "keep-mine" { "mine    removed" } else { "theirs  removed" };
        assert!(shown.contains(removed_by) && !shown.contains("not there"), "{shown}");
        for way in ["diff", "merge"] {
            let refused = scene.does(way, &[]);
            assert_eq!(refused.code, Some(1));
            assert!(refused.err.contains("keep-mine 1, keep-theirs 1"), "{}", refused.err);
        }
        scene.does(stays, &[]).succeeds();
        assert_eq!(scene.listed(), Value::Array(Vec::new()));
        undo();
        all_read();
        scene.does(removes, &[]).succeeds();
        assert_eq!(scene.listed(), Value::Array(Vec::new()));
        eventually(SOON, "it is gone", || files.iter().all(|file| !file.exists()));
        undo();
        all_read();
        assert_eq!(scene.listed()[0]["number"], 1);
        fs::write(&files[0], "later\n").unwrap();
        let refused = scene.does(removes, &[]);
        assert_eq!(refused.code, Some(1));
        assert!(refused.err.contains("--force"), "{}", refused.err);
        scene.does(removes, &["--force"]).succeeds();
        eventually(SOON, "it is gone", || files.iter().all(|file| !file.exists()));
    }
}

/// It is one, and the other is nowhere.
#[test]
fn of_a_directory_that_both_made_nothing_is_chosen() {
    let made = |file: &Path| fs::create_dir(file.with_file_name("made")).unwrap();
    let scene = Scene::of(made, made);
    assert_eq!(scene.listed()[0]["kind"], "merged");
    let shown = scene.does("show", &[]).succeeds();
    assert!(shown.contains("see to it: farfs conflicts keep-both 1\n"), "{shown}");
    for way in ["diff", "merge", "keep-mine", "keep-theirs"] {
        let refused = scene.does(way, &[]);
        assert_eq!(refused.code, Some(1), "{way}");
        assert!(refused.err.contains("keep-both 1") && !refused.err.contains("os error"), "{way}");
    }
    assert!(scene.ada.path("notes/made").is_dir());
    let place = scene.place();
    let all = run(&mut scene.conflicts(&["merge", "--all", "--in", &place]));
    assert_eq!(all.code, Some(1), "it is listed still");
    assert!(all.out.starts_with("1  skipped: conflict 1: no merge:"), "{}", all.out);
    scene.does("keep-both", &[]).succeeds();
    assert_eq!(scene.listed(), Value::Array(Vec::new()));
}

#[test]
fn taking_back_leaves_what_a_directory_holds_alone() {
    let with = |file: &Path| file.with_file_name("new");
    let scene = Scene::of(
        |file| {
            fs::create_dir(with(file)).unwrap();
            fs::write(with(file).join("page"), "before\n").unwrap();
        },
        |file| fs::write(with(file), "by bob\n").unwrap(),
    );
    scene.does("keep-theirs", &[]).succeeds();
    let page = scene.ada.path("notes/new/page");
    fs::write(&page, "later\n").unwrap();
    run(&mut scene.ada.farfs("wait", &[])).succeeds();
    run(&mut scene.conflicts(&["undo", "--in", &scene.place()])).succeeds();
    let aside = scene.ada.path(scene.listed()[0]["aside"].as_str().unwrap());
    eventually(SOON, "it is back", || {
        fs::read_to_string(&aside).is_ok_and(|read| read == "by bob\n")
    });
    assert_eq!(fs::read_to_string(page).unwrap(), "later\n");
}

#[test]
fn of_two_links_one_is_chosen_and_the_choice_is_taken_back() {
    let links = |to: &'static str| {
        move |file: &Path| std::os::unix::fs::symlink(to, file.with_file_name("new")).unwrap()
    };
    let scene = Scene::of(links("plan.txt"), links("elsewhere"));
    let leads = |to: &'static str| {
        let link = scene.ada.path("notes/new");
        eventually(SOON, to, || fs::read_link(&link).is_ok_and(|read| read == Path::new(to)));
    };
    leads("plan.txt");
    scene.does("keep-mine", &[]).succeeds();
    leads("elsewhere");
    run(&mut scene.conflicts(&["undo", "--in", &scene.place()])).succeeds();
    leads("plan.txt");
    let aside = scene.ada.path(scene.listed()[0]["aside"].as_str().unwrap());
    eventually(SOON, "it is back", || {
        fs::read_link(&aside).is_ok_and(|read| read == Path::new("elsewhere"))
    });
    scene.does("keep-theirs", &[]).succeeds();
    leads("plan.txt");
}

#[test]
fn what_began_from_nothing_is_merged_by_a_program_alone() {
    let made = |text: &'static str| {
        move |file: &Path| fs::write(file.with_file_name("made.txt"), text).unwrap()
    };
    let scene = Scene::of(made("by ada\n"), made("by bob\n"));
    let shown = scene.does("show", &[]).succeeds();
    assert!(shown.contains("diff 1, merge 1 --tool COMMAND, keep-mine 1"), "{shown}");
    for more in [&[][..], &["--markers"]] {
        let refused = scene.does("merge", more);
        assert_eq!(refused.code, Some(1));
        assert!(refused.err.contains("only a program can merge"), "{}", refused.err);
    }
    let place = scene.place();
    let all = run(&mut scene.conflicts(&["merge", "--all", "--in", &place]));
    assert!(all.out.starts_with("1  skipped: "), "{}", all.out);
    let tool = script(&scene.world.folder("tools"), "both", "cat \"$1\" \"$2\" \"$3\" > \"$4\"");
    scene.does("merge", &["--tool", &format!("{tool} %base %theirs %mine %out")]).succeeds();
    assert_eq!(scene.listed(), Value::Array(Vec::new()));
    let merged = fs::read_to_string(scene.ada.path("notes/made.txt")).unwrap();
    assert_eq!(merged, "by ada\nby bob\n");
}

#[test]
fn what_was_seen_to_is_taken_back() {
    let (by_ada, by_bob) = ("ONE\ntwo\nthree\nfour\n", "one\ntwo\nthree\nFOUR\n");
    let scene = Scene::new(by_ada, by_bob);
    let undo = |what: &[&str]| {
        run(&mut scene.conflicts(&[&["undo", "--in", &scene.place()][..], what].concat()))
    };
    assert_eq!(undo(&[]).code, Some(7), "there is nothing to take back");
    for way in ["keep-mine", "keep-theirs", "keep-both", "merge"] {
        scene.does(way, &[]).succeeds();
        assert_eq!(scene.listed(), Value::Array(Vec::new()), "{way}");
        undo(&[]).succeeds();
        scene.is_as_before(by_ada, by_bob);
    }
    scene.does("keep-mine", &[]).succeeds();
    let file = scene.ada.path("notes/plan.txt");
    fs::write(&file, "later\n").unwrap();
    let refused = undo(&["1"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("--force"), "{}", refused.err);
    assert_eq!(fs::read_to_string(&file).unwrap(), "later\n");
    undo(&[&file.display().to_string(), "--force"]).succeeds();
    scene.is_as_before(by_ada, by_bob);
}

#[test]
fn what_is_too_large_to_be_merged_by_lines_is_not_fetched_and_a_program_merges_it() {
    let of = |first: u8| move |file: &Path| fs::write(file, long(first, 66 << 20)).unwrap();
    let scene = Scene::of(of(1), of(2));
    let aside = scene.ada.path(scene.listed()[0]["aside"].as_str().unwrap());
    let cached = || {
        let mut value = [0; 32];
        let length = rustix::fs::getxattr(&aside, "user.farfs.cached", &mut value[..]).unwrap();
        str::from_utf8(&value[..length]).unwrap().parse::<u64>().unwrap()
    };
    let all = run(&mut scene.conflicts(&["merge", "--all", "--in", &scene.place()]));
    assert_eq!(all.code, Some(1));
    assert!(all.out.contains("larger than what is compared"), "{}", all.out);
    assert!(scene.does("diff", &[]).err.contains("larger than what is compared"));
    assert!(cached() < 1 << 20, "{} were fetched", cached());
    scene.does("merge", &["--tool", "cp %mine %out"]).succeeds();
    assert_eq!(scene.listed(), Value::Array(Vec::new()));
    assert!(fs::read(scene.ada.path("notes/plan.txt")).unwrap() == long(2, 66 << 20));
}

/// Bytes that are no text, and no two stretches of which are alike.
fn long(first: u8, bytes: usize) -> Vec<u8> {
    let mut last = u64::from(first);
    let mut next = || {
        last = last.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        last.to_le_bytes()
    };
    (0..bytes / 8).flat_map(|_| next()).collect()
}

#[test]
fn nobody_is_shown_a_part_of_what_was_merged_though_the_command_is_killed() {
    let scene = Scene::new("by ada\n", "by bob\n");
    let (tools, whole) = (scene.world.folder("tools"), long(3, 40 << 20));
    fs::write(tools.join("whole"), &whole).unwrap();
    let text = format!("cp '{}' \"$1\"", tools.join("whole").display());
    let tool = format!("{} %out", script(&tools, "large", &text));
    let place = scene.place();
    let merges = || {
        let mut merge = scene.conflicts(&["merge", "1", "--in", &place, "--tool", &tool]);
        // Killed, it leaves there what it worked with.
        merge.env("TMPDIR", &tools);
        merge
    };
    let staged = scene.ada.path("notes/.farfs-merge-1");
    let file = scene.ada.path("notes/plan.txt");
    let mut first = merges().spawn().unwrap();
    eventually(SOON, "it is being stored", || {
        staged.exists() || fs::metadata(&file).unwrap().len() != 7
    });
    first.kill().unwrap();
    first.wait().unwrap();
    run(&mut scene.ada.farfs("wait", &[])).succeeds();
    for mount in [&scene.ada, &scene.bob] {
        let read = fs::read(mount.path("notes/plan.txt")).unwrap();
        assert!(read == b"by ada\n" || read == whole, "{} bytes", read.len());
    }
    run(&mut merges()).succeeds();
    assert_eq!(scene.listed(), Value::Array(Vec::new()));
    for mount in [&scene.ada, &scene.bob] {
        eventually(SOON, "everybody sees it", || {
            let names = fs::read_dir(mount.path("notes")).unwrap().count();
            names == 1 && fs::read(mount.path("notes/plan.txt")).is_ok_and(|read| read == whole)
        });
    }
}

/// Killed while it waits, or after the server has made the file what was merged.
#[test]
fn what_a_merge_that_was_killed_has_left_is_removed_however_the_conflict_is_seen_to() {
    for way in ["merge", "keep-mine", "keep-theirs", "keep-both"] {
        let scene = Scene::new("by ada\n", "by bob\n");
        let tools = scene.world.folder("tools");
        let tool = format!("{} %out", script(&tools, "both", "echo both > \"$1\""));
        let (place, staged) = (scene.place(), scene.ada.path("notes/.farfs-merge-1"));
        run(&mut scene.ada.farfs("pause", &[])).succeeds();
        let mut merge = scene.conflicts(&["merge", "1", "--in", &place, "--tool", &tool]);
        let mut merge = merge.env("TMPDIR", &tools).spawn().unwrap();
        eventually(SOON, "it is staged", || staged.exists());
        merge.kill().unwrap();
        merge.wait().unwrap();
        run(&mut scene.ada.farfs("resume", &[])).succeeds();
        if way == "merge" {
            fs::write(scene.ada.path("notes/plan.txt"), "both\n").unwrap();
        }
        run(&mut scene.ada.farfs("wait", &[])).succeeds();
        eventually(SOON, "others see it", || scene.bob.path("notes/.farfs-merge-1").exists());
        match way {
            "merge" => scene.does(way, &["--tool", &tool]).succeeds(),
            way => scene.does(way, &[]).succeeds(),
        };
        assert!(!staged.exists(), "{way}");
        match way {
            "merge" => scene.settled("both\n"),
            "keep-mine" => scene.settled("by bob\n"),
            "keep-theirs" => scene.settled("by ada\n"),
            _ => assert_eq!(fs::read_dir(scene.ada.path("notes")).unwrap().count(), 2),
        }
    }
}

#[test]
fn what_is_merged_and_has_no_room_changes_nothing() {
    let scene = Scene::new("by ada\n", "by bob\n");
    let data = scene.server.data.to_str().unwrap();
    let set = ["volume", "set", "--data", data, "--quota", "100K", "main"];
    run(&mut e2e::world::farfs(&set)).succeeds();
    let probe = scene.ada.path("probe");
    eventually(SOON, "the quota is known", || {
        let written = fs::write(&probe, long(4, 200_000));
        fs::remove_file(&probe).unwrap();
        run(&mut scene.ada.farfs("wait", &[])).succeeds();
        written.is_err()
    });
    let tools = scene.world.folder("tools");
    let text = "head -c 300000 /dev/urandom > \"$1\"";
    let tool = format!("{} %out", script(&tools, "large", text));
    let refused = scene.does("merge", &["--tool", &tool]);
    assert_eq!(refused.code, Some(1), "{}", refused.err);
    run(&mut scene.ada.farfs("wait", &[])).succeeds();
    assert_eq!(scene.listed()[0]["claimed_by"], Value::Null);
    for mount in [&scene.ada, &scene.bob] {
        assert_eq!(fs::read_to_string(mount.path("notes/plan.txt")).unwrap(), "by ada\n");
        assert_eq!(fs::read_dir(mount.path("notes")).unwrap().count(), 2);
    }
    assert!(refused.err.contains("nothing was done"), "{}", refused.err);
}

/// Killed when it was done here and nobody else knew.
#[test]
fn what_did_not_come_to_its_last_word_is_done_again_by_the_same_command_and_taken_back() {
    let (by_ada, by_bob) = ("ONE\ntwo\nthree\nfour\n", "one\ntwo\nthree\nFOUR\n");
    for (way, left) in [("keep-mine", by_bob), ("keep-theirs", by_ada)] {
        let scene = Scene::new(by_ada, by_bob);
        let aside = scene.ada.path(scene.listed()[0]["aside"].as_str().unwrap());
        run(&mut scene.ada.farfs("pause", &[])).succeeds();
        let place = scene.place();
        let mut first = scene.conflicts(&[way, "1", "--in", &place]).spawn().unwrap();
        eventually(SOON, "it is done here", || !aside.exists());
        first.kill().unwrap();
        first.wait().unwrap();
        run(&mut scene.ada.farfs("resume", &[])).succeeds();
        let of_bob = scene.bob.mountpoint.display().to_string();
        let refused = run(&mut scene.conflicts(&["keep-both", "1", "--in", &of_bob]));
        assert!(refused.err.contains("is about to see to conflict 1"), "{}", refused.err);
        let told = scene.does(way, &[]).succeeds();
        assert!(told.contains("nothing was left to do"), "{told}");
        scene.settled(left);
        let undo = |which: &[&str]| {
            let undo = [&["undo", "--in", &place][..], which].concat();
            run(&mut scene.conflicts(&undo)).succeeds()
        };
        undo(&[]);
        scene.is_as_before(by_ada, by_bob);
        undo(&["1"]);
        scene.is_as_before(by_ada, by_bob);
    }
}

#[test]
fn of_two_commands_at_one_mount_one_at_a_time_sees_to_a_conflict() {
    let scene = Scene::new("by ada\n", "by bob\n");
    let directory = fs::File::open(&scene.ada.state).unwrap();
    let exclusive = rustix::fs::FlockOperation::LockExclusive;
    rustix::fs::flock(&directory, exclusive).unwrap();
    let place = scene.place();
    let mut commands = ["keep-mine", "keep-theirs"]
        .map(|way| scene.conflicts(&[way, "1", "--in", &place]).spawn().unwrap());
    std::thread::sleep(2 * SECOND);
    assert!(commands.iter_mut().all(|command| command.try_wait().unwrap().is_none()));
    assert_eq!(scene.listed()[0]["claimed_by"], Value::Null);
    assert_eq!(fs::read_dir(scene.ada.path("notes")).unwrap().count(), 2);
    drop(directory);
    let ended = commands.map(|mut command| command.wait().unwrap().success());
    assert!(ended[0] != ended[1], "one did it, and the other was told so: {ended:?}");
    scene.settled(if ended[0] { "by bob\n" } else { "by ada\n" });
}

#[test]
fn programs_of_the_configuration_file_merge_what_they_are_for() {
    let scene = Scene::new("by ada\n", "by bob\n");
    let tools = scene.world.folder("tools");
    let config = tools.join("config.toml");
    let merges = |what: &[&str], with: &str| {
        fs::write(&config, with).unwrap();
        let mut command = scene.conflicts(&[&["merge", "--in", &scene.place()][..], what].concat());
        run(command.env("FARFS_CONFIG", &config))
    };
    let script = script(&tools, "merge", "ls \"$1\" > \"$3\"; cat \"$2\" >> \"$3\"");
    let notes = scene.ada.path("notes").display().to_string();
    let by_script =
        format!("[mergers]\n'*.txt' = ['{script}', '{notes}', '{{base}}', '{{merged}}']\n");
    let failed = merges(&["1"], "[mergers]\n'*.txt' = 'false {merged}'\n");
    assert_eq!(failed.code, Some(1));
    let slow = "[mergers]\n'*.txt' = ['sh', '-c', 'sleep 100; cp $0 $1', '{mine}', '{merged}']\n";
    let slow = merges(&["--all", "--tool-timeout", "1s"], slow);
    assert_eq!(slow.code, Some(1));
    assert!(slow.out.contains("1 s"), "{} {}", slow.out, slow.err);
    let none = merges(&["1"], "[mergers]\n'*.txt' = 'cp {mine}'\n");
    assert_eq!(none.code, Some(2), "it would write nothing");
    let other = merges(&["1"], "[mergers]\n'*.po' = 'cp {mine} {merged}'\n");
    assert_eq!(other.code, Some(1), "by lines, which both changed");
    assert_eq!(scene.listed()[0]["number"], 1, "nothing was done");
    assert_eq!(fs::read_to_string(scene.ada.path("notes/plan.txt")).unwrap(), "by ada\n");
    merges(&["--all"], &by_script).succeeds();
    let merged = fs::read_to_string(scene.ada.path("notes/plan.txt")).unwrap();
    let names: Vec<&str> = merged.lines().take(2).collect();
    assert!(names[0].starts_with("plan (conflict of") && names[1] == "plan.txt", "{merged}");
    assert!(merged.ends_with(BASE), "{merged}");
    scene.settled(&merged);
}

#[test]
fn what_is_changed_while_it_is_merged_is_not_replaced_and_nobody_is_held_up() {
    let scene = Scene::new("by ada\n", "by bob\n");
    let file = scene.ada.path("notes/plan.txt");
    let text = format!("echo later >> '{}'; cp \"$1\" \"$2\"", file.display());
    let tool = script(&scene.world.folder("tools"), "changes", &text);
    let refused = scene.does("merge", &["--tool", &format!("{tool} %mine %out")]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("changed"), "{}", refused.err);
    assert_eq!(fs::read_to_string(&file).unwrap(), "by ada\nlater\n");
    assert_eq!(fs::read_dir(scene.ada.path("notes")).unwrap().count(), 2);
    assert_eq!(scene.listed()[0]["claimed_by"], Value::Null);
    scene.does("keep-theirs", &[]).succeeds();
    scene.settled("by ada\nlater\n");
}

#[test]
fn what_is_stored_beside_while_the_merged_file_is_on_its_way_stays() {
    let scene = Scene::new("by ada\n", "by bob\n");
    let tools = scene.world.folder("tools");
    let tool = format!("{} %out", script(&tools, "both", "echo both > \"$1\""));
    let (place, staged) = (scene.place(), scene.ada.path("notes/.farfs-merge-1"));
    let aside = scene.ada.path(scene.listed()[0]["aside"].as_str().unwrap());
    run(&mut scene.ada.farfs("pause", &[])).succeeds();
    let mut merge = scene.conflicts(&["merge", "1", "--in", &place, "--tool", &tool]);
    let merge = merge.stderr(std::process::Stdio::piped()).spawn().unwrap();
    eventually(SOON, "it is staged", || staged.exists());
    fs::write(&aside, "by bob, later\n").unwrap();
    run(&mut scene.ada.farfs("resume", &[])).succeeds();
    let ended = merge.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(told.contains("changed while both sides"), "{told}");
    assert_eq!(fs::read_to_string(&aside).unwrap(), "by bob, later\n");
    assert_eq!(fs::read_to_string(scene.ada.path("notes/plan.txt")).unwrap(), "both\n");
    assert_eq!(scene.listed()[0]["number"], 1);
}

fn script(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// In a name space of its own, something that lies over the directory.
#[test]
fn what_lies_beside_and_is_not_shown_here_yet_is_not_taken_for_gone() {
    let scene = Scene::new("ONE\ntwo\nthree\nfour\n", "one\ntwo\nthree\nFOUR\n");
    let (place, notes) = (scene.place(), scene.ada.path("notes"));
    let beside = fs::read_dir(&notes).unwrap().count();
    for arguments in [&["keep-theirs", "1"][..], &["merge", "1"], &["merge", "--all"]] {
        let farfs = scene.conflicts(&[arguments, &["--in", &place]].concat());
        let hidden = "mount -t tmpfs none \"$0\" && echo it > \"$0/plan.txt\" && exec \"$@\"";
        let mut command = std::process::Command::new("unshare");
        command.args(["--mount", "sh", "-c", hidden]).arg(&notes);
        command.arg(farfs.get_program()).args(farfs.get_args());
        let set = |(name, value)| Option::zip(Some(name), value);
        command.envs(farfs.get_envs().filter_map(set));
        let told = run(&mut command);
        let text = told.out + &told.err;
        assert!(text.contains("does not show it yet"), "{arguments:?}: {text}");
        assert_eq!(scene.listed()[0]["claimed_by"], Value::Null);
        assert_eq!(fs::read_dir(&notes).unwrap().count(), beside);
    }
    scene.does("merge", &[]).succeeds();
    scene.settled("ONE\ntwo\nthree\nFOUR\n");
}

/// The conflict is listed still, and what lay beside has the name.
#[test]
fn what_was_moved_over_the_name_by_hand_is_removed_by_nothing() {
    for way in ["merge", "keep-mine", "keep-both"] {
        let scene = Scene::new("ONE\ntwo\nthree\nfour\n", "one\ntwo\nthree\nFOUR\n");
        let aside = scene.listed()[0]["aside"].as_str().unwrap().to_owned();
        let text = fs::read_to_string(scene.ada.path(&aside)).unwrap();
        fs::rename(scene.ada.path(&aside), scene.ada.path("notes/plan.txt")).unwrap();
        run(&mut scene.ada.farfs("wait", &[])).succeeds();
        let place = scene.place();
        let told = match way {
            "merge" => {
                let refused = scene.does("keep-theirs", &[]);
                assert_eq!(refused.code, Some(1));
                assert!(refused.err.contains("farfs restore"), "{}", refused.err);
                let all = ["merge", "--all", "--in", &place];
                run(&mut scene.conflicts(&all)).succeeds()
            }
            way => scene.does(way, &[]).succeeds(),
        };
        assert_eq!(told.contains("has the name by now"), way != "keep-both", "{told}");
        scene.settled(&text);
    }
}

#[test]
fn where_both_names_lead_to_one_file_none_of_them_is_removed() {
    let scene = Scene::new("ONE\ntwo\nthree\nfour\n", "one\ntwo\nthree\nFOUR\n");
    let aside = scene.ada.path(scene.listed()[0]["aside"].as_str().unwrap());
    let file = scene.ada.path("notes/plan.txt");
    fs::remove_file(&file).unwrap();
    fs::hard_link(&aside, &file).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    for way in ["merge", "keep-theirs", "diff"] {
        let refused = scene.does(way, &[]);
        assert_eq!(refused.code, Some(1), "{way}");
        assert!(refused.err.contains("lead to one file"), "{}", refused.err);
    }
    let all = run(&mut scene.conflicts(&["merge", "--all", "--in", &scene.place()]));
    assert!(all.out.starts_with("1  skipped: "), "{}", all.out);
    assert!([&file, &aside].iter().all(|path| fs::read_to_string(path).unwrap() == text));
    scene.does("keep-mine", &[]).succeeds();
    assert_eq!(scene.listed(), Value::Array(Vec::new()));
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}

/// As after a command whose last word was lost: nothing of what the other has is removed.
#[test]
fn where_what_lay_beside_was_removed_by_hand_the_other_stays() {
    let (one, four) = ("ONE\ntwo\nthree\nfour\n", "one\ntwo\nthree\nFOUR\n");
    let in_place = |text: &'static str| move |file: &Path| fs::write(file, text).unwrap();
    for way in ["keep-theirs", "merge", "keep-mine"] {
        for scene in [
            Scene::of(in_place(one), in_place(four)),
            Scene::of(save_by_rename(one), in_place(four)),
            Scene::of(in_place(one), save_by_rename(four)),
        ] {
            let aside = scene.listed()[0]["aside"].as_str().unwrap().to_owned();
            fs::remove_file(scene.ada.path(&aside)).unwrap();
            let told = scene.does(way, &[]);
            let (text, code) = match way {
                "keep-mine" => (told.err, Some(1)),
                _ => (told.out, Some(0)),
            };
            assert_eq!(told.code, code, "{text}");
            assert!(text.contains("nothing lies beside the name any more"), "{text}");
            if way == "keep-mine" {
                scene.does("keep-both", &[]).succeeds();
            }
            scene.settled(one);
        }
    }
}

#[test]
fn of_two_modes_one_is_chosen_and_the_choice_is_taken_back() {
    let scene = Scene::new("by ada\n", BASE);
    let file = |mount: &Mount| mount.path("notes/plan.txt");
    let mode = |mount: &Mount| fs::metadata(file(mount)).unwrap().mode() & 0o7777;
    let set = |mount: &Mount, mode| {
        fs::set_permissions(file(mount), fs::Permissions::from_mode(mode)).unwrap();
    };
    run(&mut scene.conflicts(&["keep-theirs", "1", "--in", &scene.place()])).succeeds();
    eventually(SOON, "bob sees it", || fs::read_dir(scene.bob.path("notes")).unwrap().count() == 1);
    run(&mut scene.bob.farfs("mode", &["disconnected"])).succeeds();
    set(&scene.bob, 0o640);
    set(&scene.ada, 0o600);
    run(&mut scene.ada.farfs("wait", &[])).succeeds();
    run(&mut scene.bob.farfs("mode", &["partial"])).succeeds();
    run(&mut scene.bob.farfs("wait", &[])).succeeds();
    eventually(SOON, "the later holds", || mode(&scene.ada) == 0o640);
    let listed = scene.listed();
    assert_eq!((&listed[0]["number"], &listed[0]["kind"]), (&2.into(), &"attributes".into()));
    let set_by = &listed[0]["settings"][0];
    assert_eq!((&set_by["theirs"], &set_by["mine"]), (&"0600".into(), &"0640".into()));
    let place = scene.place();
    let does = |what: &str| run(&mut scene.conflicts(&[what, "2", "--in", &place]));
    let shown = does("show").succeeds();
    assert!(shown.contains("mode: theirs 0600, mine 0640, before 0644"), "{shown}");
    assert_eq!(does("merge").code, Some(1));
    // The volume's, whoever was kept aside.
    for mount in [&scene.ada, &scene.bob] {
        eventually(Duration::from_secs(60), "status counts it", || {
            let status = run(&mut mount.farfs("status", &[])).succeeds();
            status.contains("1 in the volume")
        });
    }
    does("keep-theirs").succeeds();
    assert_eq!(scene.listed(), Value::Array(Vec::new()));
    eventually(SOON, "everybody sees it", || mode(&scene.bob) == 0o600);
    run(&mut scene.conflicts(&["undo", "--in", &place])).succeeds();
    assert_eq!(scene.listed()[0]["number"], 2);
    eventually(SOON, "the later holds again", || mode(&scene.bob) == 0o640);
    set(&scene.ada, 0o755);
    assert_eq!(does("keep-mine").code, Some(1), "it is neither");
    does("keep-both").succeeds();
    assert_eq!(mode(&scene.ada), 0o755);
}

#[test]
fn without_a_link_the_list_is_as_it_was_last_told() {
    let scene = Scene::new("one by ada\n", "one by bob\n");
    // His change has met hers, and he has not asked for the list.
    let ask_bob = |more: &[&str]| run(&mut scene.bob.farfs("conflicts", more));
    run(&mut scene.ada.farfs("mode", &["disconnected"])).succeeds();
    let hers = run(&mut scene.ada.farfs("conflicts", &[]));
    assert_eq!((hers.code, hers.out.as_str()), (Some(3), ""), "{}", hers.err);
    eventually(SOON, "he is told by himself", || {
        run(&mut scene.bob.farfs("mode", &["disconnected"])).succeeds();
        let told = ask_bob(&[]).out.contains("plan.txt");
        run(&mut scene.bob.farfs("mode", &["partial"])).succeeds();
        std::thread::sleep(2 * SECOND);
        told
    });
    run(&mut scene.bob.farfs("mode", &["disconnected"])).succeeds();
    let told = ask_bob(&["--json"]);
    assert_eq!(told.code, Some(3), "{}", told.out);
    let list: Value = serde_json::from_str(&told.out).unwrap();
    assert!(list[0]["path"].as_str().unwrap().ends_with("notes/plan.txt"), "{list}");
    assert!(told.err.contains("the server said") && told.err.contains("ago"), "{}", told.err);
}
