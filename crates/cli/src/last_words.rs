//! How the program ends when a damaged file makes the store panic in a way that nobody can catch: as it ends
//! for all other damage.
//! Holds: it says which file, and what to do, and ends with the exit code of damage.
//! Never: returns, or waits for what the thread that panics may hold.

use crate::exit::{self, Exit};
use crate::output;
use anyhow::Error;
use std::sync::{Mutex, OnceLock, PoisonError};
use store::StoreError;

/// Where it is said. Unless a command has said otherwise, on standard error.
static TOLD: OnceLock<fn(&str, Exit)> = OnceLock::new();
/// What a command says before the words of the store.
static CONTEXT: Mutex<Option<String>> = Mutex::new(None);

/// For a process whose standard error leads nowhere.
pub fn are_told_by(tell: fn(&str, Exit)) {
    // Who comes second would say the same.
    let _ = TOLD.set(tell);
}

/// What this is about, and what to do about it.
pub fn begin_with(context: String) {
    *CONTEXT.lock().unwrap_or_else(PoisonError::into_inner) = Some(context);
}

/// Ends the process.
pub fn say(damage: StoreError) -> ! {
    let context = CONTEXT.try_lock().ok().and_then(|context| context.clone());
    let (words, exit) = words(damage, context);
    match TOLD.get() {
        Some(tell) => tell(&words, exit),
        None => output::tell(words),
    }
    std::process::exit(exit as i32)
}

fn words(damage: StoreError, context: Option<String>) -> (String, Exit) {
    let error = Error::new(damage);
    let error = match context {
        Some(context) => error.context(context),
        None => error,
    };
    (exit::words(&error), exit::code(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_ends_the_program_as_damage_does_with_what_to_do_before_it() {
        let damaged = || StoreError::Damaged { place: "/x".into(), what: "y; z".into() };
        assert_eq!(words(damaged(), None), ("/x is damaged: y; z".into(), Exit::Damaged));
        let (said, exit) = words(damaged(), Some("cannot use it; salvage it".into()));
        assert_eq!(said, "cannot use it; salvage it: /x is damaged: y; z");
        assert_eq!(exit, Exit::Damaged);
    }
}
