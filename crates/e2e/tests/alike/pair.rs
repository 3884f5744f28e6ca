//! Both sides, step by step, until they differ.

use crate::chance::Chance;
use crate::doing::{close_all, done};
use crate::looking::{Seen, looked};
use crate::side::Side;
use crate::steps::{Call, Step, drawn};
use crate::tolerated::{self, Verdict};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// Differences that are told before the rest is not looked for any more.
const TOLD_MAX: usize = 40;

/// Of what is told, so many steps.
const STEPS_TOLD_MAX: usize = 30;

struct Difference {
    /// After how many steps, and what was seen there and here.
    at: usize,
    local: String,
    here: String,
}

/// What differs in each seed, one text each; of the same kind only the first.
/// What is left of each is shown to `elsewhere`, which says what differs on another machine.
pub fn differences(
    (local, here): (&Path, &Path),
    seeds: Range<u64>,
    steps: usize,
    elsewhere: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let mut number = 0;
    let mut fresh = |steps: &[Step], large: bool| {
        number += 1;
        let name = format!("case-{number}");
        let places = [local, here].map(|place| place.join(&name));
        let difference = differs(&places[0], &places[1], steps, large).or_else(|| {
            let here = elsewhere(&name)?;
            Some(Difference { at: steps.len(), local: "the same elsewhere".into(), here })
        });
        for place in places {
            let _ = std::fs::remove_dir_all(place);
        }
        difference
    };
    for seed in seeds {
        let chance = Chance::new(seed);
        let large = chance.large;
        let mut steps = drawn(chance, steps);
        let Some(mut difference) = fresh(&steps, large) else { continue };
        let kind = kind(&steps, &difference);
        if found.contains_key(&kind) {
            continue;
        }
        steps.truncate(difference.at + 1);
        let again = fresh(&steps, large).is_some();
        let tries = if again { 0..steps.len() } else { 0..0 };
        for at in tries.rev() {
            let mut fewer = steps.clone();
            if at + 1 >= fewer.len() {
                continue;
            }
            fewer.remove(at);
            if let Some(other) = fresh(&fewer, large)
                && self::kind(&fewer, &other) == kind
            {
                (steps, difference) = (fewer, other);
                steps.truncate(difference.at + 1);
            }
        }
        // What does not happen again is told with what was done last.
        let list: Vec<_> = steps.iter().rev().take(STEPS_TOLD_MAX).rev().collect();
        let list: Vec<_> = list.into_iter().map(|step| format!("    {step:?}")).collect();
        let text = format!(
            "seed {seed}{}:\n{}\n  local {}\n  here  {}\n",
            if again { "" } else { ", and not when it was done again" },
            list.join("\n"),
            difference.local,
            difference.here
        );
        println!("{text}");
        found.insert(kind, text);
        if found.len() >= TOLD_MAX {
            break;
        }
    }
    found.into_values().collect()
}

/// Roughly what it is, so that the same is not told again and again.
fn kind(steps: &[Step], difference: &Difference) -> String {
    let call = steps.get(difference.at).map_or_else(String::new, |step| format!("{:?}", step.call));
    let call = call.split([' ', '{']).next().unwrap_or_default().to_owned();
    let word = |text: &str| -> String {
        text.chars().filter(|letter| !letter.is_ascii_digit()).take(28).collect()
    };
    if call == "Look" {
        return format!("{call} {}", tolerated::parts(&difference.local, &difference.here));
    }
    format!("{call} {} {}", word(&difference.local), word(&difference.here))
}

fn differs(local: &Path, here: &Path, steps: &[Step], large: bool) -> Option<Difference> {
    let partial = here.iter().any(|part| part == "partial");
    crate::side::usual_mask();
    let mut sides = [Side::new(local, large), Side::new(here, large)];
    let mut seen = [Seen::default(), Seen::default()];
    let look = Step { user: 0, call: Call::Look { deep: true } };
    let (mut last, mut mapped) = (Vec::new(), false);
    for (at, step) in steps.iter().chain([&look]).enumerate() {
        if at == steps.len() {
            sides.iter_mut().for_each(close_all);
        }
        if let Call::Look { deep } = step.call {
            let [before, now] = [0, 1].map(|side| looked(&sides[side].tree, &mut seen[side], deep));
            if let Some((local, here)) = tolerated::tree((mapped, partial), &last, before, now) {
                return Some(Difference { at, local, here });
            }
            last.clear();
            continue;
        }
        let [local, here] = [0, 1].map(|side| done(&mut sides[side], step));
        match tolerated::call(step, &local, &here) {
            Verdict::Same => {}
            Verdict::Differs => return Some(Difference { at, local, here }),
            Verdict::Ends => return None,
        }
        mapped |= matches!(step.call, Call::MapWhole { shared: true, .. } | Call::Poke { .. });
        last.push(step.clone());
    }
    None
}
