//! Every family under fixed seeds and fresh ones. `FARFS_SIM_SEEDS` says how many fixed seeds
//! there are of each family, `FARFS_SIM_FRESH` how many fresh ones, and `FARFS_SIM_FROM` where
//! those begin. A failing seed prints the command that repeats it.

#![allow(clippy::disallowed_methods, reason = "fresh seeds come from real time")]

use sim::run::{Family, Order, run};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const FIXED_SEEDS: u64 = 64;
const FRESH_SEEDS: u64 = 16;
/// Seeds that are played twice, to see that nothing but the seed decides.
const TWICE: u64 = 4;
/// A run takes a tenth of a second.
const STUCK_AFTER: Duration = Duration::from_secs(120);

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// Fails the process if a run does not end: a loop in which simulated time stands still.
struct Watchdog {
    done: std::sync::mpsc::Sender<()>,
}

impl Watchdog {
    fn watch(order: Order) -> Watchdog {
        let (done, waits) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            if let Err(std::sync::mpsc::RecvTimeoutError::Timeout) = waits.recv_timeout(STUCK_AFTER)
            {
                eprintln!("STUCK: {order}");
                std::process::exit(101);
            }
        });
        Watchdog { done }
    }
}

fn play(order: Order) -> Result<u64, String> {
    let watchdog = Watchdog::watch(order);
    let report = catch_unwind(AssertUnwindSafe(|| run(&order)));
    // The watchdog may have given up just now.
    let _ = watchdog.done.send(());
    match report {
        Ok(report) => report.outcome.map(|()| report.hash).map_err(|why| format!("{order}\n{why}")),
        Err(_) => Err(format!("{order}\npanicked")),
    }
}

fn check(family: Family) {
    check_one_in(family, 1);
}

/// Of runs that take longer there are fewer.
fn check_one_in(family: Family, one_in: u64) {
    let started = Instant::now();
    let fresh_from = number("FARFS_SIM_FROM").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
        // Short enough to be typed, and far from the fixed ones.
        1_000_000 + now.as_micros() as u64 % 1_000_000_000
    });
    let fixed = number("FARFS_SIM_SEEDS").unwrap_or(FIXED_SEEDS / one_in);
    let fresh = number("FARFS_SIM_FRESH").unwrap_or(FRESH_SEEDS / one_in);
    println!("{}: fresh seeds from {fresh_from}", family.name());
    let mut failed = Vec::new();
    for seed in (1..=fixed).chain(fresh_from..fresh_from + fresh) {
        let outcome = play(Order::new(family, seed));
        if seed <= TWICE && outcome != play(Order::new(family, seed)) {
            failed.push(format!("{} --twice\ndiffers from run to run", Order::new(family, seed)));
        }
        failed.extend(outcome.err());
    }
    println!("{}: {:?}", family.name(), started.elapsed());
    assert!(failed.is_empty(), "{} seeds failed:\n\n{}", failed.len(), failed.join("\n\n"));
}

#[test]
fn one_connected_client_is_a_file_system() {
    check(Family::ConnectedSingle);
}

#[test]
fn connected_clients_are_one_file_system_with_close_to_open() {
    check(Family::ConnectedSeveral);
}

#[test]
fn connected_clients_at_once_see_what_was_closed() {
    check(Family::ConnectedCrowd);
}

#[test]
fn clients_over_weak_links_lose_nothing_and_agree_in_the_end() {
    check(Family::PartialSeveral);
}

#[test]
fn killed_machines_lose_nothing_that_was_acknowledged() {
    check(Family::Crashes);
}

#[test]
fn machines_without_power_lose_nothing_that_was_synced() {
    check(Family::PowerCuts);
}

#[test]
fn bad_lines_delay_and_neither_lose_nor_repeat() {
    check(Family::NetworkFaults);
}

#[test]
fn full_disks_refuse_and_lose_nothing_and_all_goes_on_with_room() {
    check(Family::FullDisks);
}

#[test]
fn damaged_indexes_cost_time_alone() {
    check(Family::DamagedIndexes);
}

#[test]
fn in_a_storm_of_cuts_kills_and_wishes_nothing_is_lost_or_unlisted() {
    check_one_in(Family::Storm, 4);
}
