//! How long programs and people wait for a mount while it is busy with something else.

use super::contents;
use crate::loopback::Client;
use anyhow::Result;
use bench::random::Random;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Between the end of one and the beginning of the next.
const PAUSE: Duration = Duration::from_millis(50);

/// What is waited for, and the longest of many waits.
pub type Waits = [(&'static str, Duration); 3];

/// Does `work`. Meanwhile asks for the status, asks for the size of one of the files of the tree
/// after another, and makes files beside them.
pub fn meanwhile<T>(
    client: &Client,
    (tree, files): (&Path, u64),
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Waits)> {
    let done = AtomicBool::new(false);
    let asker = client.asker();
    let mut random = Random::new(files);
    let mut number = 0;
    thread::scope(|scope| {
        let told = scope.spawn(|| longest(&done, || asker.status().map(drop)));
        let looked =
            scope.spawn(|| longest(&done, || contents::look_at(tree, random.below(files))));
        let made = scope.spawn(|| {
            longest(&done, || {
                number += 1;
                contents::make_beside(tree, number)
            })
        });
        let worked = work();
        done.store(true, Ordering::Release);
        let end = |one: thread::ScopedJoinHandle<'_, Result<Duration>>| match one.join() {
            Ok(longest) => longest,
            Err(panicked) => std::panic::resume_unwind(panicked),
        };
        let waits = [
            ("longest wait for `farfs status`", end(told)?),
            ("for the size of a file", end(looked)?),
            ("for a new file", end(made)?),
        ];
        Ok((worked?, waits))
    })
}

fn longest(done: &AtomicBool, mut once: impl FnMut() -> Result<()>) -> Result<Duration> {
    let mut longest = Duration::ZERO;
    while !done.load(Ordering::Acquire) {
        let begun = Instant::now();
        once()?;
        longest = longest.max(begun.elapsed());
        thread::sleep(PAUSE);
    }
    Ok(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_wait_is_found_and_an_error_ends_it() {
        let done = AtomicBool::new(false);
        let mut waits = [0, 20, 0].into_iter();
        let found = longest(&done, || {
            match waits.next() {
                Some(wait) => thread::sleep(Duration::from_millis(wait)),
                None => done.store(true, Ordering::Release),
            }
            Ok(())
        });
        assert!(found.unwrap() >= Duration::from_millis(20));
        done.store(false, Ordering::Release);
        assert!(longest(&done, || anyhow::bail!("it does not answer")).is_err());
    }
}
