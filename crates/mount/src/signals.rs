//! Whether a process that waits for us is to stop waiting, told from what /proc shows of it.
//!
//! The kernel's own notice does not say which signal it was. The signal stays pending, though, and that
//! can be seen.
//! Holds: SIGKILL always ends a wait, and so does every signal by which the process would end.
//! A signal that a program catches ends nothing that changes a file: no program expects an `fsync`
//! that fails with EINTR, and databases end over it, which no local disk makes them do. Of what only
//! asks, those end a wait by which people ask to stop, once it has lasted so long that the link must
//! be stuck.

use std::time::Duration;

/// Signals of a thread, each a set of bits in which signal n is bit n - 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signals {
    /// Pending for the thread or for its process.
    pub pending: u64,
    pub blocked: u64,
    pub ignored: u64,
    pub caught: u64,
}

/// What one look at a waiting thread found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// It ended while its request was on the way.
    Gone,
    Alive(Signals),
}

/// Which signals end a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Those by which the process ends.
    WhenEnded,
    /// Those, and after a while those by which it is asked to stop.
    WhenToStop,
    /// All that the process feels, as on a local disk. The kernel begins the call again after
    /// those of which the program wants it.
    WithAnySignal,
}

impl Ends {
    /// Whether a wait that has `lasted` so long is to end with EINTR.
    pub(crate) fn by(self, look: Look, lasted: Duration) -> bool {
        let Look::Alive(signals) = look else { return true };
        let felt = signals.pending & !signals.blocked & !signals.ignored;
        let fatal = !signals.caught & !HARMLESS;
        let ending = match self {
            Ends::WhenToStop if lasted >= STUCK_AFTER => fatal | ASK_TO_STOP,
            Ends::WhenEnded | Ends::WhenToStop => fatal,
            Ends::WithAnySignal => signals.caught | !HARMLESS,
        };
        signals.pending & KILL != 0 || felt & ending != 0
    }
}

const fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

/// A wait of a link that works is over long before.
const STUCK_AFTER: Duration = Duration::from_secs(3);
const KILL: u64 = bit(libc::SIGKILL);
/// By these people and supervisors ask a program to stop.
const ASK_TO_STOP: u64 =
    bit(libc::SIGHUP) | bit(libc::SIGINT) | bit(libc::SIGQUIT) | bit(libc::SIGTERM);
/// These end no process, even if it does nothing about them.
const HARMLESS: u64 = bit(libc::SIGCHLD)
    | bit(libc::SIGCONT)
    | bit(libc::SIGURG)
    | bit(libc::SIGWINCH)
    | bit(libc::SIGSTOP)
    | bit(libc::SIGTSTP)
    | bit(libc::SIGTTIN)
    | bit(libc::SIGTTOU);

/// Reads `/proc/TID/status`. None: it does not look as it should, and says nothing.
pub(crate) fn read_status(status: &str) -> Option<Look> {
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    };
    let set = |name: &str| u64::from_str_radix(field(name)?, 16).ok();
    if field("State")?.starts_with(['Z', 'X']) {
        return Some(Look::Gone);
    }
    Some(Look::Alive(Signals {
        pending: set("SigPnd")? | set("ShdPnd")?,
        blocked: set("SigBlk")?,
        ignored: set("SigIgn")?,
        caught: set("SigCgt")?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pending(signal: libc::c_int) -> Signals {
        Signals { pending: bit(signal), ..Signals::default() }
    }

    fn ends(signals: Signals) -> bool {
        Ends::WhenToStop.by(Look::Alive(signals), STUCK_AFTER)
    }

    fn ends_for_a_lock(look: Look) -> bool {
        Ends::WithAnySignal.by(look, Duration::ZERO)
    }

    #[test]
    fn a_status_of_a_thread_is_read_with_both_sets_of_pending_signals() {
        let status = "Name:\tcat\nUmask:\t0022\nState:\tD (disk sleep)\nTgid:\t17\n\
                      SigQ:\t1/7000\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000004002\n\
                      SigBlk:\t0000000000010000\nSigIgn:\t0000000000001000\n\
                      SigCgt:\t0000000180000002\nCapInh:\t0\n";
        let wanted =
            Signals { pending: 0x4102, blocked: 0x10000, ignored: 0x1000, caught: 0x1_8000_0002 };
        assert_eq!(read_status(status), Some(Look::Alive(wanted)));
    }

    #[test]
    fn this_very_thread_can_be_read_and_nothing_ends_its_wait() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let look = read_status(&status).unwrap();
        assert!(matches!(look, Look::Alive(_)));
        assert!(!Ends::WhenToStop.by(look, STUCK_AFTER));
    }

    #[test]
    fn a_status_that_is_cut_short_says_nothing_and_a_dead_thread_is_gone() {
        assert_eq!(read_status("Name:\tcat\nState:\tS (sleeping)\nSigPnd:\t00"), None);
        assert_eq!(read_status(""), None);
        assert_eq!(read_status("State:\tZ (zombie)\n"), Some(Look::Gone));
        assert!(Ends::WhenEnded.by(Look::Gone, Duration::ZERO));
    }

    #[test]
    fn sigkill_ends_every_wait() {
        let all = !0;
        let signals = Signals { pending: KILL, blocked: all, ignored: all, caught: all };
        assert!(ends(signals));
        assert!(Ends::WhenEnded.by(Look::Alive(signals), Duration::ZERO));
    }

    #[test]
    fn what_is_blocked_or_ignored_ends_no_wait() {
        let term = pending(libc::SIGTERM);
        assert!(ends(term));
        assert!(!ends(Signals { blocked: term.pending, ..term }));
        assert!(!ends(Signals { ignored: term.pending, ..term }));
    }

    #[test]
    fn who_catches_that_he_is_asked_to_stop_is_told_so_after_a_while_if_he_only_asks() {
        let interrupt = pending(libc::SIGINT);
        let caught = Look::Alive(Signals { caught: interrupt.pending, ..interrupt });
        assert!(Ends::WhenToStop.by(caught, STUCK_AFTER));
        assert!(!Ends::WhenToStop.by(caught, STUCK_AFTER / 2));
        assert!(!Ends::WhenEnded.by(caught, 100 * STUCK_AFTER));
        // Who does not catch it ends at once.
        assert!(Ends::WhenEnded.by(Look::Alive(interrupt), Duration::ZERO));
    }

    #[test]
    fn a_programs_own_alarm_ends_its_wait_only_if_it_ends_the_program() {
        let alarm = pending(libc::SIGALRM);
        assert!(!ends(Signals { caught: alarm.pending, ..alarm }));
        assert!(ends(alarm));
    }

    #[test]
    fn a_wait_for_a_lock_ends_with_every_signal_that_the_program_feels() {
        for signal in [libc::SIGALRM, libc::SIGCHLD, libc::SIGUSR1, libc::SIGTERM] {
            let caught = Signals { caught: bit(signal), ..pending(signal) };
            assert!(ends_for_a_lock(Look::Alive(caught)), "signal {signal}");
            let blocked = Signals { blocked: bit(signal), ..caught };
            assert!(!ends_for_a_lock(Look::Alive(blocked)), "signal {signal}");
        }
        assert!(!ends_for_a_lock(Look::Alive(pending(libc::SIGCHLD))));
        assert!(ends_for_a_lock(Look::Gone));
        let blocked = Signals { blocked: !0, ..pending(libc::SIGKILL) };
        assert!(ends_for_a_lock(Look::Alive(blocked)));
    }

    #[test]
    fn a_program_that_is_stopped_or_loses_a_child_goes_on_waiting() {
        for signal in [libc::SIGTSTP, libc::SIGCHLD, libc::SIGWINCH, libc::SIGCONT] {
            assert!(!ends(pending(signal)), "signal {signal}");
        }
    }

    proptest! {
        #[test]
        fn prop_any_text_is_read_without_a_panic(status in ".{0,300}") {
            let _ = read_status(&status);
        }

        #[test]
        fn prop_a_signal_more_never_makes_a_wait_longer(
            pending: u64, more in 1_i32..65, blocked: u64, ignored: u64, caught: u64,
        ) {
            let signals = Signals { pending, blocked, ignored, caught };
            let with_more = Signals { pending: pending | bit(more), ..signals };
            prop_assert!(!ends(signals) || ends(with_more));
        }
    }
}
