//! Signals that a program catches while it changes a file.

use crate::in_both_modes;
use e2e::eventually;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Catches what asks it to stop, as databases do for purposes of their own, and makes, writes, syncs,
/// renames and removes files.
const WORKS: &str = r#"
    use IO::Handle;
    my $caught = 0;
    $SIG{$_} = sub { $caught++ } for qw(INT HUP TERM QUIT);
    for my $round (1..40) {
        open my $file, "+>", "new" or die "open: $!";
        syswrite $file, "x" x 5000 or die "write: $!";
        $file->sync or die "fsync: $!";
        close $file or die "close: $!";
        rename "new", "file" or die "rename: $!";
        mkdir "folder" or die "mkdir: $!";
        rmdir "folder" or die "rmdir: $!";
    }
    mkdir "done" or die "mkdir: $!";
    # Nobody sends it any more before it ends.
    select undef, undef, undef, 0.02 until -e "end";
    print "caught $caught\n";
"#;

#[test]
fn a_program_that_catches_signals_has_no_change_fail_by_one() {
    in_both_modes(|mount| {
        let here = mount.mountpoint.as_path();
        let mut program = Command::new("perl");
        let program = program.args(["-e", WORKS]).current_dir(here).stdout(Stdio::piped());
        let mut program = program.stderr(Stdio::piped()).spawn().unwrap();
        let asked = [Signal::INT, Signal::HUP, Signal::TERM, Signal::QUIT];
        // It catches them from its first file on.
        eventually(Duration::from_secs(20), "it has begun", || here.join("file").exists());
        for signal in asked.iter().cycle() {
            if here.join("done").exists() || program.try_wait().unwrap().is_some() {
                break;
            }
            let _ = kill_process(Pid::from_child(&program), *signal);
            std::thread::sleep(Duration::from_millis(1));
        }
        fs::write(here.join("end"), "").unwrap();
        let ran = program.wait_with_output().unwrap();
        let (said, errors) =
            (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success(), "{}: {said}{errors}", ran.status);
        assert!(said.starts_with("caught ") && said.trim() != "caught 0", "{said}");
        assert_eq!(fs::read(here.join("file")).unwrap(), [b'x'; 5000]);
    });
}
