//! Conflicts about what is neither a file nor a directory, of which the kernel asks a mount for no version,
//! and between things of different kinds.

use super::{SOON, Scene};
use e2e::{Mount, eventually, run};
use rustix::fs::{CWD, Mode, mkfifoat};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

/// Both made a link, ada to `plan.txt` and bob, who came second, to `elsewhere`.
fn two_links() -> Scene {
    let links =
        |to: &'static str| move |file: &Path| symlink(to, file.with_file_name("new")).unwrap();
    Scene::of(links("plan.txt"), links("elsewhere"))
}

fn leads(scene: &Scene, to: &str) {
    let link = scene.ada.path("notes/new");
    eventually(SOON, to, || fs::read_link(&link).is_ok_and(|read| read == Path::new(to)));
}

/// As `ln -sfn` does, at `mount`, and it is at the server.
fn linked_anew(mount: &Mount, name: &str, to: &str) {
    let (link, beside) = (mount.path(name), mount.path("notes/beside"));
    symlink(to, &beside).unwrap();
    fs::rename(&beside, &link).unwrap();
    run(&mut mount.farfs("wait", &[])).succeeds();
}

fn undo(scene: &Scene, more: &[&str]) -> e2e::process::Ran {
    let place = scene.place();
    run(&mut scene.conflicts(&[&["undo", "1", "--in", &place][..], more].concat()))
}

fn is_refused(told: &e2e::process::Ran) {
    assert_eq!(told.code, Some(1), "{} {}", told.out, told.err);
    assert!(told.err.contains("changed since") && told.err.contains("--force"), "{}", told.err);
}

#[test]
fn a_link_that_was_changed_since_is_replaced_by_the_other_only_if_that_is_wanted() {
    let scene = two_links();
    linked_anew(&scene.ada, "notes/new", "third");
    is_refused(&scene.does("keep-mine", &[]));
    leads(&scene, "third");
    assert_eq!(scene.listed()[0]["number"], 1);
    scene.does("keep-mine", &["--force"]).succeeds();
    leads(&scene, "elsewhere");
    undo(&scene, &[]).succeeds();
    leads(&scene, "third");
}

#[test]
fn taking_back_replaces_a_link_that_was_changed_since_only_if_that_is_wanted() {
    for (way, left) in [("keep-theirs", "plan.txt"), ("keep-mine", "elsewhere")] {
        let made_anew = |link: &Path| {
            fs::remove_file(link).unwrap();
            symlink("third", link).unwrap();
        };
        let scene = two_links();
        scene.does(way, &[]).succeeds();
        leads(&scene, left);
        made_anew(&scene.ada.path("notes/new"));
        is_refused(&undo(&scene, &[]));
        leads(&scene, "third");
        undo(&scene, &["--force"]).succeeds();
        leads(&scene, "plan.txt");
        // By whom it was changed does not matter.
        scene.does(way, &[]).succeeds();
        eventually(SOON, "bob sees it", || {
            let read = fs::read_link(scene.bob.path("notes/new"));
            read.is_ok_and(|read| read == Path::new(left))
        });
        linked_anew(&scene.bob, "notes/new", "fourth");
        is_refused(&undo(&scene, &[]));
    }
}

/// Bob renamed the link that ada removed.
#[test]
fn a_link_that_was_changed_since_is_removed_only_if_that_is_wanted() {
    let scene = Scene::of(|_| {}, |_| {});
    symlink("plan.txt", scene.ada.path("notes/old")).unwrap();
    run(&mut scene.ada.farfs("wait", &[])).succeeds();
    let at_bob = |name: &str| scene.bob.path(name);
    eventually(SOON, "bob sees it", || fs::read_link(at_bob("notes/old")).is_ok());
    run(&mut scene.bob.farfs("mode", &["disconnected"])).succeeds();
    fs::rename(at_bob("notes/old"), at_bob("notes/new")).unwrap();
    fs::remove_file(scene.ada.path("notes/old")).unwrap();
    run(&mut scene.ada.farfs("wait", &[])).succeeds();
    run(&mut scene.bob.farfs("mode", &["partial"])).succeeds();
    run(&mut scene.bob.farfs("wait", &[])).succeeds();
    leads(&scene, "plan.txt");
    assert_eq!(scene.listed()[0]["kind"], "removed");
    linked_anew(&scene.ada, "notes/new", "third");
    is_refused(&scene.does("keep-theirs", &[]));
    leads(&scene, "third");
    scene.does("keep-theirs", &["--force"]).succeeds();
    let link = scene.ada.path("notes/new");
    eventually(SOON, "it is gone", || fs::symlink_metadata(&link).is_err());
}

#[test]
fn of_two_pipes_one_is_chosen_and_the_choice_is_taken_back() {
    let pipe = |mode: u32| {
        move |file: &Path| {
            mkfifoat(CWD, file.with_file_name("new"), Mode::from_raw_mode(mode)).unwrap();
        }
    };
    let scene = Scene::of(pipe(0o600), pipe(0o640));
    let is_that_of = |mode: u32| {
        let path = scene.ada.path("notes/new");
        let mode_of = || fs::symlink_metadata(&path).map(|meta| meta.mode() & 0o777);
        eventually(SOON, "it is that", || mode_of().is_ok_and(|its| its == mode));
    };
    for (way, left) in [("keep-mine", 0o640), ("keep-theirs", 0o600)] {
        is_that_of(0o600);
        scene.does(way, &[]).succeeds();
        is_that_of(left);
        undo(&scene, &[]).succeeds();
    }
    is_that_of(0o600);
    let path = scene.ada.path("notes/new");
    fs::remove_file(&path).unwrap();
    mkfifoat(CWD, &path, Mode::from_raw_mode(0o644)).unwrap();
    is_refused(&scene.does("keep-mine", &[]));
    is_that_of(0o644);
}

/// Makes a file, a link or a pipe.
fn make(kind: char, path: &Path) {
    match kind {
        'f' => fs::write(path, "text\n").unwrap(),
        'l' => symlink("plan.txt", path).unwrap(),
        'p' => mkfifoat(CWD, path, Mode::from_raw_mode(0o600)).unwrap(),
        kind => panic!("{kind}"),
    }
}

fn kind(path: &Path) -> Option<char> {
    let mode = fs::symlink_metadata(path).ok()?.mode();
    [('f', 0o100_000), ('l', 0o120_000), ('p', 0o010_000), ('d', 0o040_000)]
        .into_iter()
        .find(|(_, bits)| mode & 0o170_000 == *bits)
        .map(|(kind, _)| kind)
}

/// Of each name ada has made the first and bob the second.
fn of_kinds(pairs: &'static [(char, char)]) -> Scene {
    let names = |file: &Path| {
        let names = (0..pairs.len()).map(|at| file.with_file_name(format!("new{at}")));
        names.collect::<Vec<_>>()
    };
    let scene = Scene::of(
        |file| names(file).iter().zip(pairs).for_each(|(name, pair)| make(pair.0, name)),
        |file| names(file).iter().zip(pairs).for_each(|(name, pair)| make(pair.1, name)),
    );
    assert_eq!(scene.listed().as_array().unwrap().len(), pairs.len());
    scene
}

/// `farfs conflicts WHAT --in ADA`
fn conflicts(scene: &Scene, what: &str) -> e2e::process::Ran {
    let words: Vec<&str> = what.split(' ').collect();
    run(&mut scene.conflicts(&[&words[..], &["--in", &scene.place()]].concat()))
}

#[test]
fn of_two_kinds_one_is_chosen_and_the_choice_is_taken_back() {
    const PAIRS: [(char, char); 6] =
        [('f', 'l'), ('l', 'f'), ('l', 'p'), ('p', 'l'), ('p', 'f'), ('f', 'p')];
    let scene = of_kinds(&PAIRS);
    let path = |at: usize| scene.ada.path(format!("notes/new{at}"));
    let is = |at: usize, expected| {
        eventually(SOON, "it is of that kind", || kind(&path(at)) == Some(expected));
    };
    for (at, (theirs, mine)) in PAIRS.into_iter().enumerate() {
        let number = at + 1;
        is(at, theirs);
        conflicts(&scene, &format!("keep-mine {number}")).succeeds();
        is(at, mine);
        conflicts(&scene, "undo").succeeds();
        is(at, theirs);
        let listed = scene.listed();
        let listed = listed.as_array().unwrap().iter().find(|one| one["number"] == number);
        let aside = scene.ada.path(listed.unwrap()["aside"].as_str().unwrap());
        eventually(SOON, "it lies beside again", || kind(&aside) == Some(mine));
        // Of what was changed since only if that is wanted.
        conflicts(&scene, &format!("keep-mine {number}")).succeeds();
        is(at, mine);
        let third = if theirs == 'p' { 'l' } else { 'p' };
        fs::remove_file(path(at)).unwrap();
        make(third, &path(at));
        run(&mut scene.ada.farfs("wait", &[])).succeeds();
        is_refused(&conflicts(&scene, "undo"));
        is(at, third);
        conflicts(&scene, "undo --force").succeeds();
        is(at, theirs);
    }
    let text = fs::read_to_string(path(0)).unwrap();
    assert_eq!(text, "text\n");
}

#[test]
fn one_that_cannot_be_taken_back_is_passed_over_and_named() {
    let scene = of_kinds(&[('f', 'l'), ('f', 'l')]);
    for number in [1, 2] {
        conflicts(&scene, &format!("keep-mine {number}")).succeeds();
    }
    let second = scene.ada.path("notes/new1");
    fs::remove_file(&second).unwrap();
    fs::create_dir(&second).unwrap();
    run(&mut scene.ada.farfs("wait", &[])).succeeds();
    // Whether it is to be done all the same is asked, and the one before is named.
    let asked = conflicts(&scene, "undo");
    is_refused(&asked);
    assert!(asked.err.contains("`farfs conflicts undo 1`"), "{}", asked.err);
    let refused = conflicts(&scene, "undo 2 --force");
    assert_eq!(refused.code, Some(1), "{}", refused.out);
    assert!(refused.err.contains("move away"), "{}", refused.err);
    let passed = conflicts(&scene, "undo --force").succeeds();
    assert!(passed.contains("passed over: conflict 2: /notes/new1"), "{passed}");
    assert!(passed.ends_with("conflict 1 is listed\n"), "{passed}");
    assert_eq!(kind(&second), Some('d'));
    fs::remove_dir(&second).unwrap();
    conflicts(&scene, "undo --force").succeeds();
    eventually(SOON, "it is back", || kind(&second) == Some('f'));
    assert_eq!(scene.listed().as_array().unwrap().len(), 2);
}

/// Of a file and of directories to which both have done something, ada before bob's was sent.
#[test]
fn what_others_set_shows_as_soon_as_what_was_done_here_is_sent() {
    let scene = Scene::of(|_| {}, |_| {});
    let (ada, bob) = (&scene.ada, &scene.bob);
    run(&mut bob.farfs("pause", &[])).succeeds();
    fs::write(bob.path("notes/by bob"), "by bob").unwrap();
    let times = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    fs::File::open(bob.path("notes/plan.txt")).unwrap().set_times(times).unwrap();
    fs::set_permissions(ada.path("notes/plan.txt"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(ada.path("notes/by ada")).unwrap();
    run(&mut ada.farfs("wait", &[])).succeeds();
    eventually(SOON, "bob hears of it", || bob.path("notes/by ada").exists());
    let shows = |name: &str| {
        let now = fs::metadata(bob.path(name)).unwrap();
        (now.mode() & 0o777, now.nlink())
    };
    // The kernel has them as they show with what bob did.
    assert!(["notes/plan.txt", "notes"].iter().all(|name| shows(name).1 > 0));
    run(&mut bob.farfs("resume", &[])).succeeds();
    run(&mut bob.farfs("wait", &[])).succeeds();
    let at_once = Duration::from_secs(5);
    eventually(at_once, "the permissions are ada's", || shows("notes/plan.txt").0 == 0o600);
    eventually(at_once, "and one directory more is counted", || shows("notes").1 == 3);
}
