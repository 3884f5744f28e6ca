//! Plays one seed of the simulator, or several, and says what failed.

use sim::run::{Family, Order, run};
use sim::tally::Tally;
use std::process::ExitCode;

const USAGE: &str = "\
usage: sim [--scenario NAME] [--seed N] [--seeds N] [--steps N] [--trace] [--twice]

  --scenario NAME  the family to play; without it, all
  --seed N         the first seed (1)
  --seeds N        how many seeds, one after another (1)
  --steps N        operations in each run
  --trace          prints everything that happens
  --twice          plays each seed twice and compares the traces";

struct Wanted {
    families: Vec<Family>,
    seed: u64,
    seeds: u64,
    steps: Option<usize>,
    trace: bool,
    twice: bool,
}

fn main() -> ExitCode {
    let wanted = match parse(std::env::args().skip(1)) {
        Ok(wanted) => wanted,
        Err(why) => {
            eprintln!("sim: {why}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let (mut failed, mut together) = (0, Tally::default());
    for family in &wanted.families {
        for seed in wanted.seed..wanted.seed + wanted.seeds {
            let mut order = Order { print: wanted.trace, ..Order::new(*family, seed) };
            order.steps = wanted.steps.unwrap_or(order.steps);
            let (passed, tally) = play(&order, wanted.twice);
            failed += u32::from(!passed);
            together += tally;
        }
    }
    if together.runs > 1 {
        println!("together: {together}; {failed} failed");
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn play(order: &Order, twice: bool) -> (bool, Tally) {
    let report = run(order);
    let again = twice.then(|| run(order));
    if again.is_some_and(|again| again.hash != report.hash) {
        println!("DIFFERS from run to run: {order}");
        return (false, report.tally);
    }
    match report.outcome {
        Ok(()) => {
            println!("{:016x} {} lines: {order}", report.hash, report.lines);
            (true, report.tally)
        }
        Err(why) => {
            println!("FAILED: {order}\n{why}");
            (false, report.tally)
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Wanted, String> {
    let mut wanted = Wanted {
        families: Family::ALL.to_vec(),
        seed: 1,
        seeds: 1,
        steps: None,
        trace: false,
        twice: false,
    };
    while let Some(flag) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{flag} needs a value"));
        match flag.as_str() {
            "--scenario" => {
                let name = value()?;
                let known: Vec<&str> = Family::ALL.iter().map(|family| family.name()).collect();
                let family = Family::of_name(&name)
                    .ok_or(format!("no scenario {name:?}; there are {}", known.join(", ")))?;
                wanted.families = vec![family];
            }
            "--seed" => wanted.seed = number(&value()?)?,
            "--seeds" => wanted.seeds = number(&value()?)?,
            "--steps" => wanted.steps = Some(number(&value()?)? as usize),
            "--trace" => wanted.trace = true,
            "--twice" => wanted.twice = true,
            _ => return Err(format!("unknown argument {flag:?}")),
        }
    }
    Ok(wanted)
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}
