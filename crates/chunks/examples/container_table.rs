//! What it takes to look into containers, and to assemble them where everything is there, as a table
//! in Markdown: `cargo run -p chunks --release --example container_table -- NAME FILE [NAME FILE...]`.
#![allow(clippy::disallowed_methods, reason = "it reads files that were named")]

use chunks::delta::Part;
use chunks::inside::{self, Inside, region_of};
use chunks::{Secret, describe_bytes, sketch, unpack_assembled};
use model::{FileId, Stamp};
use protocol::{Base, Cutter, Range};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

const STRETCH_BYTES: u64 = 1 << 20;

fn main() -> std::io::Result<()> {
    println!(
        "| container | bytes | members | plain bytes | cut and named | features | looked into | \
         assembled, 1 MiB at a time | bytes of that | made again |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    for [name, file] in arguments.as_chunks().0 {
        row(name, &std::fs::read(file)?);
    }
    Ok(())
}

fn row(name: &str, file: &[u8]) {
    let secret = Secret::new([7; 32]);
    let (_, described) = timed(|| describe_bytes(&secret, Cutter::Gear, file));
    let (_, features) = timed(|| sketch::features(&secret, file));
    let size = file.len() as u64;
    let mut read = |offset: u64, length: usize| {
        let rest = file.get(offset as usize..).unwrap_or_default();
        Ok(rest[..rest.len().min(length)].to_vec())
    };
    let mut looked = Duration::ZERO;
    let (mut members, mut plain, mut taken, mut made, mut bytes) =
        (0, 0, Duration::ZERO, Duration::ZERO, 0);
    let mut from = 0;
    while from < size {
        let region = region_of(size, from);
        let end = region.end;
        let (found, time) =
            timed(|| inside::look(&secret, Cutter::Gear, (size, region), &mut read));
        looked += time;
        if let Ok(Ok(found)) = found {
            members += found.members();
            plain += found.streams.iter().map(|stream| stream.plain).sum::<u64>();
            for start in (from..end).step_by(STRETCH_BYTES as usize) {
                let stretch = start..(start + STRETCH_BYTES).min(end);
                let (sent, back, length) = assembled(&secret, &found, file, stretch);
                (taken, made, bytes) = (taken + sent, made + back, bytes + length);
            }
        }
        from = end;
    }
    println!(
        "| {name} | {size} | {members} | {plain} | {described:.0?} | {features:.0?} | {looked:.0?} \
         | {taken:.0?} | {bytes} | {made:.0?} |"
    );
}

/// With all that it holds found as chunks: how long it takes, both ways, and its length.
fn assembled(
    secret: &Secret,
    inside: &Inside,
    file: &[u8],
    stretch: std::ops::Range<u64>,
) -> (Duration, Duration, usize) {
    let mut read = |offset: u64, length: usize| {
        let rest = file.get(offset as usize..).unwrap_or_default();
        Ok(rest[..rest.len().min(length)].to_vec())
    };
    let target = &file[stretch.start as usize..stretch.end as usize];
    let base = Base {
        file: FileId(1),
        version: Stamp::default(),
        stretch: Range { offset: 0, length: 0 },
    };
    let (coded, taken) = timed(|| {
        let segment = inside.segment(&stretch, &mut read).ok()??;
        let mut parts: Vec<(Part, Vec<u8>)> = Vec::new();
        let mut done = 0;
        for held in segment.held.iter().filter(|held| held.is_whole()) {
            if held.at.start >= done {
                done = held.at.end;
                let bytes = segment.bytes()[held.at.clone()].to_vec();
                parts.push((Part::Contents(held.contents), bytes));
            }
        }
        let parts: Vec<(Part, &[u8])> =
            parts.iter().map(|(part, bytes)| (*part, bytes.as_slice())).collect();
        let reference: Vec<u8> = parts.iter().flat_map(|(_, bytes)| *bytes).copied().collect();
        let lengths = target.chunks(8192).map(|some| some.len() as u32).collect();
        let delta = segment.assemble(secret, base, (target, lengths), &parts)?;
        Some((delta, reference))
    });
    let Some((delta, reference)) = coded else { return (taken, Duration::ZERO, target.len()) };
    let (made, back) = timed(|| unpack_assembled(secret, &delta, &reference, 8 << 20));
    assert!(made.is_ok_and(|made| made.is_some_and(|made| made.concat() == target)));
    (taken, back, delta.bytes.len())
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begun = cpu_time();
    let made = work();
    (made, cpu_time() - begun)
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
