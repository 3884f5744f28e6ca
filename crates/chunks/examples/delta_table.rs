//! What each codec makes of real material, as a table in Markdown:
//! `cargo run -p chunks --release --example delta_table -- NAME OLD NEW [NAME OLD NEW...]`.
#![allow(clippy::disallowed_methods, reason = "it reads files that were named")]

use chunks::delta::{self, Codec};
use chunks::sketch::features;
use chunks::{Secret, describe_bytes};
use model::Piece;
use protocol::Cutter;
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashSet;
use std::time::Duration;

fn main() -> std::io::Result<()> {
    println!(
        "| material | bytes | alone | new chunks | Prefix | Patch | Unpacked | chosen | of it | encode | decode | alike |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: |");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    for [name, old, new] in arguments.as_chunks().0 {
        row(name, &std::fs::read(old)?, &std::fs::read(new)?);
    }
    Ok(())
}

fn row(name: &str, old: &[u8], new: &[u8]) {
    let alone = packed(&[new]);
    let chunks = packed(&new_chunks(old, new));
    let begun = cpu_time();
    let explained = delta::explain(old, new);
    let encode = cpu_time() - begun;
    let tried = |codec: Codec| {
        let found = explained.tried.iter().find(|(tried, _)| *tried == codec);
        found.map_or(String::new(), |(_, bytes)| bytes.to_string())
    };
    let begun = cpu_time();
    let (chosen, share) = match &explained.coded {
        None => (format!("none: {:?}", explained.why), 100.0),
        Some(coded) => {
            let decoded = delta::decode(coded.codec, old, &coded.bytes, new.len());
            assert_eq!(decoded.expect("what was just coded can be decoded"), new, "{name}");
            (format!("{:?}", coded.codec), 100.0 * coded.bytes.len() as f64 / new.len() as f64)
        }
    };
    let decode = cpu_time() - begun;
    println!(
        "| {name} | {} | {alone} | {chunks} | {} | {} | {} | {chosen} | {share:.2} % | {:.0} ms | {:.0} ms | {:.2} |",
        new.len(),
        tried(Codec::Prefix),
        tried(Codec::Patch),
        tried(Codec::Unpacked),
        encode.as_secs_f64() * 1e3,
        decode.as_secs_f64() * 1e3,
        in_common(old, new),
    );
}

/// What the process has taken of a processor: others on the machine do not count.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Features that both have, as a part of all.
fn in_common(old: &[u8], new: &[u8]) -> f64 {
    let secret = Secret::new([1; 32]);
    let (old, new) = (features(&secret, old), features(&secret, new));
    let shared = new.iter().filter(|feature| old.contains(feature)).count();
    shared as f64 / new.len().max(1) as f64
}

/// The chunks of the new contents that the old ones do not have.
fn new_chunks<'a>(old: &[u8], new: &'a [u8]) -> Vec<&'a [u8]> {
    let secret = Secret::new([1; 32]);
    let name = |piece: &Piece| match piece {
        Piece::Chunk { name, .. } => Some(*name),
        Piece::Zeros { .. } => None,
    };
    let old = describe_bytes(&secret, Cutter::Gear, old);
    let mut there: HashSet<_> = old.pieces.iter().filter_map(|p| name(&p.piece)).collect();
    let described = describe_bytes(&secret, Cutter::Gear, new);
    let lacking =
        described.pieces.iter().filter(|p| name(&p.piece).is_some_and(|n| there.insert(n)));
    lacking.map(|placed| &new[placed.offset as usize..placed.end() as usize]).collect()
}

/// Bytes that payloads of these chunks take, with their names.
fn packed(chunks: &[&[u8]]) -> usize {
    let bytes = chunks.concat();
    let payloads = bytes.chunks(protocol::PAYLOAD_BYTES_MAX).map(|some| chunks::pack(&[some]));
    payloads.map(|payload| payload.bytes.len()).sum::<usize>() + 26 * chunks.len()
}
