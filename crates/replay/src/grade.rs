//! Whether a link is good enough to wait for every change.
//! Holds: a link at the edge changes its grade at most `RETURNS_A_WHILE_MAX` times for the better in
//! any `WHILE`; a new session is judged by its own figures.
//!
//! ```text
//!                    short round trip, fast enough, little lost,
//!                    and it was poor for long enough
//!            poor ------------------------------------------------> good
//!              ^      long round trip, or slow, or much lost          |
//!              +------------------------------------------------------+
//! ```

use crate::estimate::{Estimate, Figures, Sampler};
use protocol::LinkQuality;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// A round trip up to which waiting for every change is bearable, and one from which it is not:
/// a program that makes a hundred files waits a second.
const DELAY_GOOD: Duration = Duration::from_millis(8);
const DELAY_POOR: Duration = Duration::from_millis(12);
/// Bytes a second: whoever closes a file waits for its contents to go up. 16 KiB, as most files have at
/// most, take an eighth of a second; at the lower rate a quarter.
const RATE_GOOD: u64 = 128 << 10;
const RATE_POOR: u64 = 64 << 10;
/// Shares of packets: who waits for one that is lost waits some round trips and the time after which
/// it is sent again. A radio link loses one or two in a hundred without being a bad one.
const LOSS_GOOD: f64 = 0.02;
const LOSS_POOR: f64 = 0.05;

/// A grade lasts so long.
const STAY_LEAST: Duration = Duration::from_secs(5);
/// Each return to the better one within so long doubles how long the worse one lasts, up to a bound.
const WHILE: Duration = Duration::from_secs(3600);
const STAY_MOST: Duration = Duration::from_secs(600);
/// Between so many and one more there would lie 10 s, doubled six times, and 600 s five times.
pub const RETURNS_A_WHILE_MAX: usize = 11;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// Waiting for every change is bearable.
    Good,
    Poor,
}

/// Which of the figures it was that makes a link poor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    Delay,
    Rate,
    Loss,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lack::Delay => "far away",
            Lack::Rate => "slow",
            Lack::Loss => "much is lost",
        })
    }
}

/// What figures say by themselves. None: they lie between the bounds, or there are none.
pub fn grade_of(figures: &Figures) -> Option<Grade> {
    if lack_of(figures).is_some() {
        return Some(Grade::Poor);
    }
    let good = figures.delay? <= DELAY_GOOD
        && figures.rate.is_none_or(|rate| rate >= RATE_GOOD)
        && figures.loss.is_none_or(|loss| loss <= LOSS_GOOD);
    good.then_some(Grade::Good)
}

/// What makes a link poor, if something does.
pub fn lack_of(figures: &Figures) -> Option<Lack> {
    let Figures { delay, rate, loss } = figures;
    match () {
        () if delay.is_some_and(|delay| delay >= DELAY_POOR) => Some(Lack::Delay),
        () if rate.is_some_and(|rate| rate < RATE_POOR) => Some(Lack::Rate),
        () if loss.is_some_and(|loss| loss >= LOSS_POOR) => Some(Lack::Loss),
        () => None,
    }
}

/// The link as it is taken to be. Times are counted from any fixed moment.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    sampler: Sampler,
    estimate: Estimate,
    grading: Grading,
    /// The grade is from a session before.
    inherited: bool,
    /// Bytes a second upwards that the user lets it carry.
    limit: Option<u64>,
}

impl Judged {
    pub fn grade(&self) -> Option<Grade> {
        self.grading.grade
    }

    pub fn figures(&self, now: Duration) -> Figures {
        let figures = self.estimate.figures(now);
        // What is held back never fills the link, so that its rate would stay what it was before.
        let rate = match (figures.rate, self.limit) {
            (Some(rate), Some(limit)) => Some(rate.min(limit)),
            (rate, limit) => rate.or(limit),
        };
        Figures { rate, ..figures }
    }

    /// There is a new session, maybe over another link.
    pub fn begin_session(&mut self) {
        self.sampler = Sampler::default();
        self.estimate = Estimate::default();
        self.inherited = self.grading.grade.is_some();
    }

    /// Takes in what the session has counted.
    pub fn look(&mut self, quality: &LinkQuality, now: Duration) {
        self.limit = quality.limit_up;
        let Some(sample) = self.sampler.look(quality, now) else { return };
        self.estimate.take(&sample, now);
        let figures = self.figures(now);
        if figures.delay.is_none() {
            return;
        }
        let said = grade_of(&figures);
        match (sample.early, self.inherited) {
            // A session that comes back is over the same link, most often.
            (true, true) => {}
            (true, false) => self.grading.begin(said, now),
            (false, _) => self.grading.judge(said, now),
        }
    }
}

/// A grade, and how it came to be.
#[derive(Clone, Debug, Default)]
struct Grading {
    grade: Option<Grade>,
    since: Duration,
    /// When it became good again, within the last while; the newest last.
    returns: VecDeque<Duration>,
}

impl Grading {
    /// What the first figures say is gone by at once; between the bounds nobody waits.
    fn begin(&mut self, said: Option<Grade>, now: Duration) {
        (self.grade, self.since) = (said.or(self.grade).or(Some(Grade::Poor)), now);
    }

    fn judge(&mut self, said: Option<Grade>, now: Duration) {
        let Some(before) = self.grade else { return self.begin(said, now) };
        while self.returns.front().is_some_and(|at| now.saturating_sub(*at) >= WHILE) {
            self.returns.pop_front();
        }
        let Some(said) = said.filter(|said| *said != before) else { return };
        if now.saturating_sub(self.since) < stay(said, self.returns.len()) {
            return;
        }
        if said == Grade::Good {
            self.returns.push_back(now);
        }
        (self.grade, self.since) = (Some(said), now);
    }
}

/// How long a grade lasts before it becomes another, after so many returns to the better one.
fn stay(next: Grade, returns: usize) -> Duration {
    match next {
        Grade::Poor => STAY_LEAST,
        Grade::Good => {
            let doublings = u32::try_from(returns).unwrap_or(u32::MAX).min(16);
            STAY_LEAST.saturating_mul(1 << doublings).min(STAY_MOST)
        }
    }
}

#[cfg(test)]
mod tests;
