//! Who takes a lock through a descriptor of whose closes the kernel does not tell, and whether that
//! process has ended, told from what /proc shows.
//! Holds: of whom nothing can be told, as of another PID namespace, that counts as alive.

use client::{Process, Taker};
use std::time::Duration;

/// The commands of fcntl(2) by which a process locks for itself, and not for an open file description.
const LOCKS: [u64; 2] = [libc::F_SETLK as u64, libc::F_SETLKW as u64];
/// A thread that has asked may be on its way to where it waits: so often it is looked at again.
const LOOKS_MAX: usize = 40;
const LOOK_AGAIN_AFTER: Duration = Duration::from_micros(100);

/// What `/proc/PID/stat` says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    began: u64,
    /// Its first thread has ended, and no other one is left.
    is_over: bool,
}

/// Of a thread that is just asking for a lock of records, and its process.
pub(crate) fn taker(thread: u32, process: u32) -> Taker {
    let began = stat(process).map(|stat| stat.began);
    match began.filter(|_| thread != 0 && locks_for_itself(thread)) {
        Some(began) => Taker::Seen(Process { number: process, began }),
        None => Taker::Unseen,
    }
}

pub(crate) fn has_ended(process: Process) -> bool {
    match stat(process.number) {
        Some(stat) => stat.is_over || stat.began != process.began,
        None => is_nobody(process.number),
    }
}

/// Nobody has the number. What may not be looked at is there.
fn is_nobody(process: u32) -> bool {
    let pid = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

fn stat(process: u32) -> Option<Stat> {
    if process == 0 {
        return None;
    }
    read_stat(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// None: it does not look as it should.
fn read_stat(stat: &str) -> Option<Stat> {
    // A process may call itself anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let (threads, began) = (number(17)?, number(19)?);
    Some(Stat { began, is_over: fields[0] == "Z" && threads == 1 })
}

fn locks_for_itself(thread: u32) -> bool {
    for _ in 0..LOOKS_MAX {
        // Not everybody may look at it.
        let Ok(call) = std::fs::read_to_string(format!("/proc/{thread}/syscall")) else {
            return false;
        };
        if call.trim_end() != "running" {
            return is_lock_for_itself(&call);
        }
        std::thread::sleep(LOOK_AGAIN_AFTER);
    }
    false
}

/// Reads `/proc/TID/syscall`: the number of the call, and what it was given.
fn is_lock_for_itself(call: &str) -> bool {
    let mut words = call.split_ascii_whitespace();
    let number = words.next().and_then(|word| word.parse::<i64>().ok());
    let command = words.nth(1).and_then(|word| word.strip_prefix("0x"));
    let command = command.and_then(|word| u64::from_str_radix(word, 16).ok());
    number == Some(libc::SYS_fcntl) && command.is_some_and(|command| LOCKS.contains(&command))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_told_from_another_with_its_number_and_from_one_that_has_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let began = stat(child.id()).unwrap().began;
        let process = Process { number: child.id(), began };
        assert!(!has_ended(process));
        assert!(has_ended(Process { began: began + 1, ..process }));
        child.kill().unwrap();
        while !stat(child.id()).unwrap().is_over {
            std::thread::sleep(LOOK_AGAIN_AFTER);
        }
        assert!(has_ended(process), "nobody has waited for it yet");
        child.wait().unwrap();
        assert!(has_ended(process));
    }

    #[test]
    fn of_whom_nothing_can_be_told_that_is_alive() {
        assert!(!has_ended(Process { number: 0, began: 0 }));
        assert_eq!(taker(0, std::process::id()), Taker::Unseen);
        assert_eq!(taker(std::process::id(), 0), Taker::Unseen);
        // It asks for no lock now.
        assert_eq!(taker(std::process::id(), std::process::id()), Taker::Unseen);
    }

    #[test]
    fn a_process_lives_as_long_as_one_of_its_threads() {
        let line = |name: &str, state: &str, threads: u32| {
            format!("7 ({name}) {state} 1 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 {threads} 0 99 0")
        };
        let read = |name, state, threads| read_stat(&line(name, state, threads));
        assert_eq!(read("a", "S", 1), Some(Stat { began: 99, is_over: false }));
        assert_eq!(read("a", "Z", 3), Some(Stat { began: 99, is_over: false }));
        assert_eq!(read(") Z 1 (", "Z", 1), Some(Stat { began: 99, is_over: true }));
        assert_eq!(read_stat("7 (a) S 1 7"), None);
    }

    #[test]
    fn a_lock_of_an_open_file_description_is_not_its_takers() {
        let call = |command: i32| {
            let number = libc::SYS_fcntl;
            is_lock_for_itself(&format!("{number} 0x3 {command:#x} 0x7ffd 0x0 0x0 0x0 0x1 0x2\n"))
        };
        assert!(call(libc::F_SETLK) && call(libc::F_SETLKW));
        assert!(!call(libc::F_OFD_SETLK) && !call(libc::F_OFD_SETLKW));
        assert!(!is_lock_for_itself("running\n") && !is_lock_for_itself("-1 0x6 0x6"));
        assert!(!is_lock_for_itself(&format!("{} 0x6 0x6", libc::SYS_read)));
    }
}
