//! What is wrong, damaged, hostile or full: each with a clear error, and nothing lost, hung or
//! panicking.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

mod arguments;
mod damage;
mod file_size;
mod filled;
mod full;
mod identity;
mod in_use;
mod lost_log;
mod only_read;
mod peers;
mod salvage;
mod small;
mod strange;

use e2e::Ran;

/// It ended with this code, and what it said has each of these words in it.
#[track_caller]
fn says(ran: Ran, code: i32, words: &[&str]) {
    let said = ran.fails_with(code);
    for word in words {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
}
