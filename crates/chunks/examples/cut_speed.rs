//! How fast the two cutters are, side by side in one run, so that a busy machine slows both:
//! `cargo run -p chunks --release --example cut_speed`.
#![allow(clippy::disallowed_methods, reason = "it measures real time")]

use chunks::{Cut, Cutting, Secret, describe_bytes};
use protocol::Cutter;
use std::hint::black_box;
use std::time::Instant;

const BYTES: usize = 64 << 20;
const AVERAGE: usize = 8 << 10;
const ROUNDS: usize = 9;

fn main() {
    let mut bytes = vec![0; BYTES];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    let secret = Secret::new([1; 32]);

    let mut runs: Vec<(&str, Vec<f64>)> = vec![];
    for _ in 0..ROUNDS {
        note(&mut runs, "gear, cut only", || cut(Cutter::Gear, &bytes));
        note(&mut runs, "named only", || name(&secret, &bytes));
        note(&mut runs, "rabin, cut only", || cut(Cutter::Rabin, &bytes));
        note(&mut runs, "gear, cut and named", || {
            black_box(describe_bytes(&secret, Cutter::Gear, &bytes));
        });
        note(&mut runs, "rabin, cut and named", || {
            black_box(describe_bytes(&secret, Cutter::Rabin, &bytes));
        });
    }

    let medians: Vec<(&str, f64)> = runs
        .into_iter()
        .map(|(what, mut rates)| {
            rates.sort_by(f64::total_cmp);
            (what, rates[rates.len() / 2])
        })
        .collect();
    for (what, rate) in &medians {
        println!("{what:<22} {rate:>8.0} MB/s   {:>5.2} of gear", rate / medians[0].1);
    }
}

/// Adds the rate of one run, in MB/s, to those of its kind.
fn note<'a>(runs: &mut Vec<(&'a str, Vec<f64>)>, what: &'a str, run: impl FnOnce()) {
    let begun = Instant::now();
    run();
    let rate = BYTES as f64 / 1e6 / begun.elapsed().as_secs_f64();
    match runs.iter_mut().find(|(known, _)| *known == what) {
        Some((_, rates)) => rates.push(rate),
        None => runs.push((what, vec![rate])),
    }
}

/// Chunks of the average size, wherever they would be cut.
fn name(secret: &Secret, bytes: &[u8]) {
    for chunk in bytes.chunks(AVERAGE) {
        black_box(secret.name(chunk));
    }
}

fn cut(cutter: Cutter, bytes: &[u8]) {
    let mut cutting = Cutting::new(cutter, bytes.len() as u64);
    let mut sink = |cut: Cut<'_>| {
        black_box(cut);
    };
    // As a file is read.
    bytes.chunks(256 << 10).for_each(|some| cutting.push(some, &mut sink));
    cutting.finish(&mut sink).expect("the size is that of the bytes pushed");
}
