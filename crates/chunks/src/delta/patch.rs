//! Object files and programs: where a line is added, every address behind it grows, and nothing
//! longer than a few bytes stays as it was; but what changed is nearly the same everywhere. So
//! stretches of the base that are *nearly* as the target are taken, and what must be added to
//! their bytes is mostly zeros and repeats itself.
//! Holds: decoding takes memory for the target and for the streams that it is made of, each
//! bounded by the target's length.
//! From: the idea is Percival's, "Naive differences of executable code".

mod near;

use super::varint::{self, Numbers};
use super::{bad, prefix};
use crate::error::Result;
use near::Step;

/// Base and target have at most so many bytes: sorting and searching them takes a second or two.
pub(super) const PATCH_BYTES_MAX: usize = 8 << 20;

/// Instructions have at most as many bytes as the target, and so many.
const CONTROL_SLACK: usize = 64;

/// None where base or target are too large or too laborious, or the compressor fails.
pub(super) fn encode(base: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    if base.len() > PATCH_BYTES_MAX || target.len() > PATCH_BYTES_MAX {
        return None;
    }
    let mut streams = Streams::default();
    for step in near::steps(base, target)? {
        streams.add(base, target, step);
    }
    let control = prefix::encode(&[], &streams.control)?;
    let difference = prefix::encode(&[], &streams.difference)?;
    let extra = prefix::encode(&[], &streams.extra)?;
    let mut bytes = Vec::with_capacity(control.len() + difference.len() + extra.len() + 16);
    for number in [streams.control.len(), control.len(), streams.difference.len(), difference.len()]
    {
        varint::put(&mut bytes, number as u64);
    }
    bytes.extend([control, difference, extra].concat());
    Some(bytes)
}

/// Errors: `BadDelta`.
pub(super) fn decode(base: &[u8], bytes: &[u8], target_len: usize) -> Result<Vec<u8>> {
    if base.len() > PATCH_BYTES_MAX || target_len > PATCH_BYTES_MAX {
        return Err(bad(&format!("base or target has more than {PATCH_BYTES_MAX} bytes")));
    }
    let mut head = Numbers { rest: bytes };
    let control_len = head.count(target_len + CONTROL_SLACK)?;
    let control_bytes = head.count(bytes.len())?;
    let difference_len = head.count(target_len)?;
    let difference_bytes = head.count(bytes.len())?;
    let control = prefix::decode(&[], head.bytes(control_bytes)?, control_len)?;
    let difference = prefix::decode(&[], head.bytes(difference_bytes)?, difference_len)?;
    let extra = prefix::decode(&[], head.rest, target_len - difference_len)?;

    let mut control = Numbers { rest: &control };
    let mut difference = Numbers { rest: &difference };
    let mut extra = Numbers { rest: &extra };
    let mut target = Vec::with_capacity(target_len);
    let mut at = 0usize;
    while !control.rest.is_empty() {
        let start =
            isize::try_from(control.signed()?).ok().and_then(|seek| at.checked_add_signed(seek));
        let near = control.count(base.len())?;
        let fresh = control.count(target_len)?;
        let stretch = start.and_then(|start| base.get(start..start.checked_add(near)?));
        let (Some(start), Some(stretch)) = (start, stretch) else {
            return Err(bad("a stretch outside the base"));
        };
        let added = difference.bytes(near)?;
        target.extend(stretch.iter().zip(added).map(|(byte, add)| byte.wrapping_add(*add)));
        target.extend_from_slice(extra.bytes(fresh)?);
        at = start + near;
    }
    if target.len() == target_len { Ok(target) } else { Err(bad("the instructions end too early")) }
}

/// What steps are made of: where and how long, what to add to the base, what is new.
#[derive(Default)]
struct Streams {
    control: Vec<u8>,
    difference: Vec<u8>,
    extra: Vec<u8>,
    /// Where the step before ended in the base.
    at: usize,
}

impl Streams {
    /// Steps come in the target's order, and leave nothing of it out.
    fn add(&mut self, base: &[u8], target: &[u8], step: Step) {
        let near = &target[step.target..][..step.near];
        let from = &base[step.base..][..step.near];
        varint::put_signed(&mut self.control, step.base as i64 - self.at as i64);
        varint::put(&mut self.control, step.near as u64);
        varint::put(&mut self.control, step.fresh as u64);
        self.difference.extend(near.iter().zip(from).map(|(new, old)| new.wrapping_sub(*old)));
        self.extra.extend_from_slice(&target[step.target + step.near..][..step.fresh]);
        self.at = step.base + step.near;
    }
}
