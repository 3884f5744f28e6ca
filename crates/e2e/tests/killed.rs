//! kill -9 of a mount's process while the kernel is telling a name for it: the kernel waits for the lock of the
//! directory, and who has it waits for the process. Nothing of that may last.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

use e2e::mount::Wanted;
use e2e::world::farfs;
use e2e::{Lane, Mount, Process, Server, World, eventually, run};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{self, Read as _};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// What the server says takes so long to the mount that is killed.
const AWAY: Duration = Duration::from_millis(1000);
const TRIES: u32 = 10;
/// Whatever hangs for as long hangs for ever.
const HANGS: Duration = Duration::from_secs(3);
const SOON: Duration = Duration::from_secs(10);

/// Two mounts of one directory, one of them far from the server.
struct Two {
    near: Mount,
    far: Mount,
    /// Who writes in the near one meanwhile.
    other: Option<JoinHandle<io::Result<()>>>,
    // Dropped after the mounts.
    _server: Server,
}

fn two(world: &World) -> Two {
    let server = world.server();
    let near = world.mount(&server, "near", "connected");
    fs::create_dir(near.path("d")).unwrap();
    let down = Some(Lane::new(100_000_000, AWAY));
    let wanted = Wanted { mode: "connected", down, ..Wanted::default() };
    let far = world.mount_with(&server, "far", wanted);
    assert_eq!(fs::read_dir(far.path("d")).unwrap().count(), 0);
    Two { near, far, other: None, _server: server }
}

/// A thread that tells the kernel to forget something is kept there.
fn is_kept(process: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let mut stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    stats.any(|stat| stat.contains("(farfs-forget) D "))
}

fn guard_of(process: u32) -> Option<Pid> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let own = format!("\0guard\0{process}\0");
    let is_it = |pid: &i32| {
        let said = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&said).contains(&own)
    };
    Pid::from_raw(pids.find(is_it)?)
}

fn join(two: &mut Two) {
    two.other.take().into_iter().for_each(|other| other.join().unwrap().unwrap());
}

/// Kills the far mount at the worst moment. Returns what is left of it, and the program that was making a name.
fn struck(two: &mut Two) -> (Process, Child) {
    let program = at_the_worst_moment(two);
    (two.far.strike(), program)
}

/// A thread of the far mount waits for the lock of the directory, which this program has while it makes a name.
fn at_the_worst_moment(two: &mut Two) -> Child {
    let pid = two.far.process().pid();
    for number in 0..TRIES {
        let theirs = two.near.path(format!("d/theirs-{number}"));
        two.other = Some(std::thread::spawn(move || fs::write(theirs, "theirs")));
        std::thread::sleep(AWAY / 2);
        let ours = two.far.path(format!("d/ours-{number}"));
        let mut program = Command::new("touch").arg(ours).spawn().unwrap();
        while program.try_wait().unwrap().is_none() {
            if is_kept(pid) {
                return program;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        join(two);
    }
    panic!("in {TRIES} tries no name was told while another was made");
}

/// As if the process beside it were missing, which looks after it.
fn without_guard(two: &mut Two) -> (Process, Child) {
    let guard = guard_of(two.far.process().pid()).expect("somebody looks after the mount");
    kill_process(guard, Signal::KILL).unwrap();
    let (process, mut program) = struck(two);
    std::thread::sleep(HANGS);
    assert!(process.is_running() && program.try_wait().unwrap().is_none(), "it hangs");
    (process, program)
}

#[track_caller]
fn has_ended(program: &mut Child) {
    eventually(SOON, "the program goes on", || program.try_wait().unwrap().is_some());
}

/// It is mounted again, and shows what the other has made.
#[track_caller]
fn is_well(two: &mut Two) {
    join(two);
    assert_eq!(fs::read(two.far.path("d/theirs-0")).unwrap(), b"theirs");
    fs::write(two.far.path("d/later"), "later").unwrap();
    assert_eq!(fs::read(two.near.path("d/later")).unwrap(), b"later");
}

#[test]
fn a_process_that_is_killed_while_the_kernel_tells_a_name_for_it_leaves_no_program_hanging() {
    let world = World::alone(120 * SECOND);
    let mut two = two(&world);
    let pid = two.far.process().pid();
    let (process, mut program) = struck(&mut two);
    has_ended(&mut program);
    process.ends_within(SOON);
    eventually(SOON, "nothing is left running", || guard_of(pid).is_none());
    // No umount before it.
    two.far.again();
    is_well(&mut two);
}

#[test]
fn nobody_looks_after_a_mount_that_has_been_unmounted() {
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "connected");
    let pid = mount.process().pid();
    let guard = guard_of(pid).expect("somebody looks after the mount");
    // What is meant for all processes of a service is not for this one.
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::USR1] {
        kill_process(guard, signal).unwrap();
    }
    std::thread::sleep(3 * SECOND / 2);
    fs::write(mount.path("file"), "file").unwrap();
    assert_eq!(guard_of(pid), Some(guard));
    mount.unmount(&[]);
    eventually(SOON, "nothing is left running", || guard_of(pid).is_none());
}

#[test]
fn umount_frees_what_hangs_in_the_mount_of_a_killed_process() {
    let world = World::alone(120 * SECOND);
    let mut two = two(&world);
    let (process, mut program) = without_guard(&mut two);
    run(&mut farfs(&["umount", &two.far.mountpoint.display().to_string()])).succeeds();
    has_ended(&mut program);
    process.ends_within(SOON);
    two.far.again();
    is_well(&mut two);
}

#[test]
fn mount_frees_what_hangs_in_the_mount_of_a_killed_process() {
    let world = World::alone(120 * SECOND);
    let mut two = two(&world);
    let (process, mut program) = without_guard(&mut two);
    two.far.again();
    has_ended(&mut program);
    process.ends_within(SOON);
    is_well(&mut two);
}

#[test]
fn of_two_commands_that_mount_again_at_once_one_is_refused_and_the_other_stays_mounted() {
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "connected");
    fs::write(mount.path("file"), "file").unwrap();
    for _ in 0..TRIES {
        mount.strike().ends_within(SOON);
        let mut commands = [(); 2].map(|()| {
            let mut command = mount.command();
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        });
        let mut over = None;
        eventually(SOON, "one is refused", || {
            over = commands.iter_mut().position(|one| one.try_wait().unwrap().is_some());
            over.is_some()
        });
        let mut said = String::new();
        let [mut first, mut second] = commands;
        let (refused, kept) =
            if over == Some(0) { (&mut first, &mut second) } else { (&mut second, &mut first) };
        refused.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(!refused.wait().unwrap().success());
        let is_plain =
            ["already", "in use by another farfs process"].iter().any(|it| said.contains(it));
        assert!(is_plain, "{said}");
        eventually(SOON, "the other is mounted", || fs::read(mount.path("file")).is_ok());
        std::thread::sleep(SECOND / 10);
        assert_eq!(fs::read(mount.path("file")).unwrap(), b"file");
        run(&mut farfs(&["umount", &mount.mountpoint.display().to_string()])).succeeds();
        assert!(kept.wait().unwrap().success());
        mount.again();
    }
}
