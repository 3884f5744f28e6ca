//! What was not yet sent is had out of a state directory whose log is damaged in its midst.

use super::says;
use e2e::contents::noise;
use e2e::world::farfs;
use e2e::{World, eventually, run};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

const FILES: u64 = 12;

fn text(number: u64) -> Vec<u8> {
    noise(number + 1, 5_000 + 1_000 * number as usize)
}

/// The newest segment of the log, which holds something.
fn segment(log: &std::path::Path) -> PathBuf {
    let files = fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path());
    let segments = files.filter(|path| fs::metadata(path).unwrap().len() > 1_000);
    segments.max().expect("something was logged")
}

#[test]
fn what_was_not_sent_is_copied_out_of_a_damaged_state_directory() {
    let world = World::bounded(Duration::from_secs(90));
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "auto");
    fs::write(mount.path("sent"), b"sent").unwrap();
    mount.wait();
    mount.set_mode("disconnected");
    fs::create_dir(mount.path("trip")).unwrap();
    for number in 0..FILES {
        fs::write(mount.path(format!("trip/draft {number}")), text(number)).unwrap();
        let (from, to) = (format!("trip/draft {number}"), format!("trip/day {number}"));
        fs::rename(mount.path(from), mount.path(to)).unwrap();
    }
    fs::write(mount.path("trip/new"), text(0)).unwrap();
    fs::rename(mount.path("trip/new"), mount.path("trip/day 0")).unwrap();
    run(&mut mount.farfs("wait", &["--until", "logged"])).succeeds();
    mount.kill();
    let segment = segment(&mount.state.join("log"));
    let file = fs::File::options().read(true).write(true).open(&segment).unwrap();
    let (middle, mut byte) = (file.metadata().unwrap().len() / 2, [0]);
    file.read_exact_at(&mut byte, middle).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], middle).unwrap();

    let (state, out) = (mount.state.display().to_string(), world.path("salvaged"));
    eventually(Duration::from_secs(20), "it is told how to have it out", || {
        let refused = run(&mut mount.command());
        refused.code == Some(6) && refused.err.contains(&format!("farfs salvage {state}"))
    });
    let out_shown = out.display().to_string();
    let salvaged = run(&mut farfs(&["salvage", &state, &out_shown]));
    assert!(matches!(salvaged.code, Some(0 | 6)), "{}\n{}", salvaged.out, salvaged.err);
    assert!(salvaged.out.contains("cannot be read"), "{}", salvaged.out);
    let whole = |number: &u64| {
        let names = [format!("trip/day {number}"), format!("trip/draft {number}")];
        names.iter().any(|name| fs::read(out.join(name)).is_ok_and(|read| read == text(*number)))
    };
    let whole = (0..FILES).filter(whole).count() as u64;
    assert!(whole >= FILES - 1, "{whole} of {FILES}: {}\n{}", salvaged.out, salvaged.err);

    says(run(&mut farfs(&["salvage", &state, &out_shown])), 5, &["is not empty"]);
    let nothing = world.folder("nothing").display().to_string();
    let other = world.path("other").display().to_string();
    says(run(&mut farfs(&["salvage", &nothing, &other])), 7, &["not the state of a mount"]);
}
