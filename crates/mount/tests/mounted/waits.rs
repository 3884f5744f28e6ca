use crate::needs_fuse;
use crate::support::{ANSWER_WITHIN, Farm, Link, Machine};
use mount::MountOptions;
use protocol::Mode;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Long enough for a program to start and to come to its wait.
const A_WHILE: Duration = Duration::from_millis(700);
/// How soon a wait that is to end does.
const SOON: Duration = Duration::from_secs(3);

/// Two machines, of which the second has not looked at what the first wrote.
fn unread(farm: &Farm) -> (Machine, Machine) {
    let writer = farm.machine("writer", MountOptions::default());
    fs::create_dir(writer.path("folder")).unwrap();
    fs::write(writer.path("folder/file"), vec![7; 300_000]).unwrap();
    let reader = farm.machine("reader", MountOptions::default());
    // The name and the attributes are here, the contents are not.
    assert_eq!(fs::metadata(reader.path("folder/file")).unwrap().len(), 300_000);
    (writer, reader)
}

fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    kill_process(pid, signal).unwrap();
}

/// How the program ended, if it did in time.
fn ended_within(child: &mut Child, bound: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < bound {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

#[test]
fn a_read_waits_for_the_link_and_then_goes_through() {
    needs_fuse!();
    let farm = Farm::new();
    let (_writer, reader) = unread(&farm);
    reader.set_link(Link::Held);
    let mut waits = start(Command::new("cat").arg(reader.path("folder/file")));
    assert_eq!(ended_within(&mut waits, A_WHILE), None);
    // Whoever needs nothing of the link is not held up.
    assert_eq!(fs::metadata(reader.path("folder/file")).unwrap().len(), 300_000);
    reader.set_link(Link::Open);
    assert!(ended_within(&mut waits, SOON).unwrap().success());
}

#[test]
fn signals_end_programs_that_wait_for_the_link() {
    needs_fuse!();
    let farm = Farm::new();
    let (_writer, reader) = unread(&farm);
    reader.set_link(Link::Held);
    for asked in [Signal::KILL, Signal::TERM, Signal::INT] {
        // Where the tests run in the background, SIGINT comes to them as ignored.
        let program = ["--default-signal=INT,TERM", "cat"];
        let mut waits = start(Command::new("env").args(program).arg(reader.path("folder/file")));
        assert_eq!(ended_within(&mut waits, A_WHILE), None);
        signal(&waits, asked);
        let status = ended_within(&mut waits, SOON).unwrap();
        assert_eq!(status.signal(), Some(asked.as_raw()));
    }
    reader.set_link(Link::Open);
    assert_eq!(fs::read(reader.path("folder/file")).unwrap().len(), 300_000);
}

#[test]
fn a_program_that_ignores_a_signal_goes_on_waiting() {
    needs_fuse!();
    let farm = Farm::new();
    let (_writer, reader) = unread(&farm);
    reader.set_link(Link::Held);
    let script = "trap '' TERM; cat \"$0\"";
    let mut waits = start(Command::new("sh").args(["-c", script]).arg(reader.path("folder/file")));
    assert_eq!(ended_within(&mut waits, A_WHILE), None);
    signal(&waits, Signal::TERM);
    assert_eq!(ended_within(&mut waits, A_WHILE), None);
    reader.set_link(Link::Open);
    assert!(ended_within(&mut waits, SOON).unwrap().success());
}

#[test]
fn many_that_wait_leave_the_mount_usable() {
    needs_fuse!();
    let farm = Farm::new();
    let (_writer, reader) = unread(&farm);
    reader.set_link(Link::Held);
    let path = reader.path("folder/file");
    let mut waits: Vec<Child> = (0..40).map(|_| start(Command::new("cat").arg(&path))).collect();
    assert_eq!(ended_within(&mut waits[39], A_WHILE), None);
    let begun = Instant::now();
    for _ in 0..100 {
        fs::metadata(&path).unwrap();
        fs::read_dir(reader.path("")).unwrap().count();
    }
    assert!(begun.elapsed() < SOON);
    reader.set_link(Link::Open);
    for wait in &mut waits {
        assert!(ended_within(wait, 3 * SOON).unwrap().success());
    }
}

#[test]
fn an_answer_that_does_not_come_is_given_up_in_time() {
    needs_fuse!();
    let farm = Farm::new();
    let writer = farm.machine("writer", MountOptions::default());
    fs::write(writer.path("file"), vec![7; 300_000]).unwrap();
    let bound = Duration::from_secs(1);
    let reader = farm.patient_machine("reader", MountOptions::default(), bound);
    assert_eq!(fs::metadata(reader.path("file")).unwrap().len(), 300_000);
    reader.set_link(Link::Held);
    let begun = Instant::now();
    let error = fs::read(reader.path("file")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT), "{error}");
    assert!(begun.elapsed() >= bound && begun.elapsed() < bound + SOON);
}

#[test]
fn without_a_link_what_is_not_here_fails_at_once_and_what_is_here_does_not() {
    needs_fuse!();
    let farm = Farm::new();
    let (writer, reader) = unread(&farm);
    writer.set_link(Link::Cut);
    reader.set_link(Link::Cut);
    let begun = Instant::now();
    let error = fs::read(reader.path("folder/file")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostUnreachable, "{error}");
    assert!(begun.elapsed() < ANSWER_WITHIN / 2);
    // An outage that lasts is worked around; until then a change would wait for its verdict.
    assert!(writer.comes_to(Mode::Disconnected));
    assert_eq!(fs::read(writer.path("folder/file")).unwrap().len(), 300_000);
    fs::write(writer.path("offline"), "kept").unwrap();
    assert_eq!(fs::read_to_string(writer.path("offline")).unwrap(), "kept");
}

#[test]
fn a_notice_about_a_directory_that_a_request_holds_is_taken_in_time() {
    needs_fuse!();
    let farm = Farm::new();
    let (writer, reader) = unread(&farm);
    fs::create_dir(writer.path("folder/unseen")).unwrap();
    fs::write(writer.path("folder/unseen/file"), "").unwrap();
    reader.set_link(Link::Held);
    // Whatever this holds in the kernel, the writer must not wait for it.
    let mut waits = start(Command::new("ls").arg(reader.path("folder/unseen")));
    assert_eq!(ended_within(&mut waits, A_WHILE), None);
    let begun = Instant::now();
    fs::write(writer.path("folder/new"), "").unwrap();
    fs::write(writer.path("folder/unseen/new"), "").unwrap();
    assert!(begun.elapsed() < 2 * SOON, "{:?}", begun.elapsed());
    reader.set_link(Link::Open);
    assert!(ended_within(&mut waits, SOON).unwrap().success());
    assert!(fs::metadata(reader.path("folder/new")).is_ok());
    assert_eq!(fs::read_dir(reader.path("folder/unseen")).unwrap().count(), 2);
}

#[test]
fn however_many_wait_for_the_disk_the_next_call_is_taken() {
    needs_fuse!();
    let farm = Farm::new();
    // Two threads take requests, and more programs than that sync.
    let options = MountOptions { threads: Some(2), ..MountOptions::default() };
    let machine = farm.machine("machine", options);
    let programs = 4;
    let path = |n| machine.path(&format!("file{n}"));
    let files: Vec<_> = (0..programs).map(|n| fs::File::create(path(n)).unwrap()).collect();
    machine.disk().hold(true);
    std::thread::scope(|scope| {
        let syncing: Vec<_> = files.iter().map(|file| scope.spawn(|| file.sync_all())).collect();
        let begun = Instant::now();
        // The client itself may sync, too.
        while machine.disk().waiting() < programs && begun.elapsed() < SOON {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(A_WHILE);
        let (told, taken) = std::sync::mpsc::channel();
        let missing = machine.path("missing");
        scope.spawn(move || told.send(fs::metadata(missing).map(drop)));
        let answer = taken.recv_timeout(SOON);
        machine.disk().hold(false);
        assert_eq!(answer.unwrap().unwrap_err().kind(), ErrorKind::NotFound);
        for syncing in syncing {
            syncing.join().unwrap().unwrap();
        }
    });
}

/// Asks for a lock without waiting, and says what came of it. A signal that it catches begins no call again.
const ASKS_FOR_A_LOCK: &str = r#"
    use POSIX;
    POSIX::sigaction(SIGUSR1, POSIX::SigAction->new(sub {}));
    open(my $file, "+<", $ARGV[0]) or die "open: $!";
    exit(flock($file, 2 | 4) ? 0 : $!);
"#;

#[test]
fn who_does_not_wait_for_a_lock_is_not_told_of_a_signal() {
    needs_fuse!();
    let farm = Farm::new();
    let here = farm.machine("here", MountOptions::default());
    fs::write(here.path("file"), "").unwrap();
    let there = farm.machine("there", MountOptions::default());
    assert!(here.comes_to(Mode::Connected) && there.comes_to(Mode::Connected));
    fs::metadata(here.path("file")).unwrap();
    here.set_link(Link::Held);
    let program = ["-e", ASKS_FOR_A_LOCK];
    let mut asks = start(Command::new("perl").args(program).arg(here.path("file")));
    assert_eq!(ended_within(&mut asks, A_WHILE), None);
    signal(&asks, Signal::USR1);
    assert_eq!(ended_within(&mut asks, A_WHILE), None);
    here.set_link(Link::Open);
    assert_eq!(ended_within(&mut asks, SOON).unwrap().code(), Some(0));
}
