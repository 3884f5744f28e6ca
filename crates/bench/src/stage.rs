//! A workload's place to run: prepares, measures, and gives up on what takes too long.
//! Holds: a phase that is measured runs at the profile's speed, and its bytes are those from its
//! beginning until everything is at the origin.

use crate::backend::Backend;
use crate::mounts;
use crate::process::TooLong;
use crate::show::Line;
use crate::table::{bytes, seconds};
use anyhow::{Context, Result, anyhow};
use bench::{Link, Profile};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// What is still under way when everything is at the origin: acknowledgements. Twice the delay of
/// the link is added.
const TRAILING: Duration = Duration::from_millis(50);

/// One phase, measured once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    pub workload: String,
    pub phase: String,
    pub system: String,
    pub run: usize,
    /// Until the last call returned.
    pub seconds: f64,
    /// How much of that was spent in `fsync` and `close` of what was written.
    #[serde(default)]
    pub close_seconds: Option<f64>,
    /// Until everything was at the origin, the time before included.
    pub home_seconds: f64,
    pub up_bytes: u64,
    pub down_bytes: u64,
    /// What was not done when the time was over: then the numbers are those until then.
    #[serde(default)]
    pub unfinished: Option<Unfinished>,
    /// Why there are no numbers.
    pub failed: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unfinished {
    /// The calls had not returned.
    Work,
    /// They had, and not everything was at the origin.
    Home,
}

/// What work hands back for its sample.
type Closing = Option<Duration>;

pub struct Stage<'a> {
    pub backend: Box<dyn Backend>,
    pub link: Option<&'a Link>,
    pub profile: &'a Profile,
    /// The most that one phase may take.
    pub limit: Duration,
    pub workload: &'static str,
    pub system: &'static str,
    pub run: usize,
    pub samples: Vec<Sample>,
}

impl Stage<'_> {
    /// Does what must be there before something is measured, over a link that is no hindrance,
    /// and forgets it here: what follows starts cold.
    pub fn prepare(&mut self, work: impl FnOnce(&Path) -> Result<()> + Send) -> Result<()> {
        self.prepare_fast(work)?;
        self.cold()
    }

    /// The same without forgetting: what follows has in its cache what it wrote.
    pub fn prepare_warm(&mut self, work: impl FnOnce(&Path) -> Result<()> + Send) -> Result<()> {
        self.prepare_fast(work)?;
        self.backend.resume().context("cannot go on over the link that is measured")
    }

    fn prepare_fast(&mut self, work: impl FnOnce(&Path) -> Result<()> + Send) -> Result<()> {
        const PREPARE: &str = "prepare";
        if let Some(link) = self.link {
            link.set_profile(&Profile::lan());
        }
        let (start, before) = (Instant::now(), self.traffic());
        let work = |root: &Path| work(root).map(|()| None);
        let prepared = match self.within_limit(PREPARE, self.limit, work) {
            Ok(_) => self.settle(start).map_err(|error| (Unfinished::Home, error)),
            Err(error) => Err((Unfinished::Work, error)),
        };
        if let Some(link) = self.link {
            link.set_profile(self.profile);
        }
        prepared.map_err(|(what, error)| {
            let sample = self.sample(PREPARE, start.elapsed(), before);
            self.late(sample, what, &error);
            error.context("cannot prepare")
        })
    }

    pub fn cold(&mut self) -> Result<()> {
        self.backend.make_cold().context("cannot start cold")
    }

    /// Does something and measures it.
    pub fn phase(
        &mut self,
        phase: &str,
        work: impl FnOnce(&Path) -> Result<()> + Send,
    ) -> Result<()> {
        self.measure(phase, |root| work(root).map(|()| None))
    }

    /// Does something and measures the calls alone: what they leave to be sent goes on meanwhile, and
    /// while the next step is measured.
    pub fn step(
        &mut self,
        step: &str,
        work: impl FnOnce(&Path) -> Result<()> + Send,
    ) -> Result<()> {
        let (start, before) = (Instant::now(), self.traffic());
        let done = self.within_limit(step, self.limit, |root| work(root).map(|()| None));
        let sample = self.sample(step, start.elapsed(), before);
        if let Err(error) = done {
            self.late(sample, Unfinished::Work, &error);
            return Err(error.context(step.to_owned()));
        }
        self.samples.push(sample);
        Ok(())
    }

    /// The same for work that says how long `fsync` and `close` took.
    pub fn phase_closing(
        &mut self,
        phase: &str,
        work: impl FnOnce(&Path) -> Result<Duration> + Send,
    ) -> Result<()> {
        self.measure(phase, |root| work(root).map(Some))
    }

    fn measure(
        &mut self,
        phase: &str,
        work: impl FnOnce(&Path) -> Result<Closing> + Send,
    ) -> Result<()> {
        let (start, before) = (Instant::now(), self.traffic());
        let done = self.within_limit(phase, self.limit, work);
        let took = start.elapsed();
        let closing = match done {
            Ok(closing) => closing,
            Err(error) => {
                let sample = self.sample(phase, took, before);
                self.late(sample, Unfinished::Work, &error);
                return Err(error.context(phase.to_owned()));
            }
        };
        let settled = self.settle(start);
        let home = start.elapsed();
        if self.link.is_some() && settled.is_ok() {
            let delay = self.profile.up.delay + self.profile.down.delay;
            std::thread::sleep(TRAILING + 2 * delay);
        }
        let mut sample = self.sample(phase, took, before);
        sample.close_seconds = closing.map(|closing| closing.as_secs_f64());
        sample.home_seconds = home.as_secs_f64();
        if let Err(error) = settled {
            self.late(sample, Unfinished::Home, &error);
            return Err(error.context(phase.to_owned()));
        }
        println!("{}", line(&sample));
        self.samples.push(sample);
        Ok(())
    }

    /// Until everything is at the origin, or the time that began with `start` is over.
    fn settle(&mut self, start: Instant) -> Result<()> {
        let left = |limit: Duration| limit.saturating_sub(start.elapsed());
        // What the kernel holds back may have to wait for the link.
        let synced =
            self.within_limit("sync", left(self.limit), |root| mounts::sync(root).map(|()| None));
        let settled = synced.and_then(|_| self.backend.settle(left(self.limit)));
        settled.map_err(|error| match start.elapsed() >= self.limit {
            true => error.context(TooLong(self.limit)),
            false => error,
        })
    }

    fn sample(&self, phase: &str, took: Duration, before: (u64, u64)) -> Sample {
        let after = self.traffic();
        Sample {
            workload: self.workload.into(),
            phase: phase.into(),
            system: self.system.into(),
            run: self.run,
            seconds: took.as_secs_f64(),
            close_seconds: None,
            home_seconds: took.as_secs_f64(),
            up_bytes: after.0 - before.0,
            down_bytes: after.1 - before.1,
            unfinished: None,
            failed: None,
        }
    }

    /// Keeps what was measured of a phase that took too long. Other errors have no numbers.
    fn late(&mut self, sample: Sample, what: Unfinished, error: &anyhow::Error) {
        if error.downcast_ref::<TooLong>().is_none() {
            return;
        }
        let limit = self.limit.as_secs_f64();
        let seconds = if what == Unfinished::Work { limit } else { sample.seconds };
        let sample = Sample { seconds, home_seconds: limit, unfinished: Some(what), ..sample };
        println!("{}", line(&sample));
        self.samples.push(sample);
    }

    /// What a phase that failed leaves in the table, unless its numbers until then are there.
    pub fn failed(&mut self, error: &anyhow::Error) {
        if self.samples.last().is_some_and(|last| last.unfinished.is_some()) {
            return;
        }
        let (start, before) = (Duration::ZERO, self.traffic());
        let sample = self.sample("failed", start, before);
        self.samples.push(Sample { failed: Some(format!("{error:#}")), ..sample });
    }

    fn traffic(&self) -> (u64, u64) {
        let traffic = self.link.map(Link::counters).unwrap_or_default();
        (traffic.up.carried.bytes, traffic.down.carried.bytes)
    }

    /// Does the work in a thread, and makes the file system fail under it when its time is over.
    fn within_limit(
        &mut self,
        what: &str,
        limit: Duration,
        work: impl FnOnce(&Path) -> Result<Closing> + Send,
    ) -> Result<Closing> {
        let root = self.backend.root().to_owned();
        let show = Line::new(format!("{} {what} on {}", self.workload, self.system));
        let link = self.link.map(|link| (link, link.counters().bytes()));
        let (start, (sender, receiver)) = (Instant::now(), mpsc::channel());
        std::thread::scope(|scope| {
            scope.spawn(move || sender.send(work(&root)));
            loop {
                match receiver.recv_timeout(LOOK_EVERY) {
                    Ok(result) => return result,
                    Err(RecvTimeoutError::Disconnected) => return Err(anyhow!("it panicked")),
                    Err(RecvTimeoutError::Timeout) => show.look(link),
                }
                if start.elapsed() > limit {
                    self.backend.abort();
                    // The thread ends soon, as its calls fail; the scope waits for it.
                    return Err(TooLong(self.limit).into());
                }
            }
        })
    }
}

fn line(sample: &Sample) -> String {
    let Sample { workload, phase, system, unfinished, .. } = sample;
    let more = |over| if over { ">" } else { "" };
    format!(
        "{workload:10} {phase:24} {system:15} {:>9}, home {:>9}, up {:>8}, down {:>8}",
        more(*unfinished == Some(Unfinished::Work)).to_owned() + &seconds(sample.seconds),
        more(unfinished.is_some()).to_owned() + &seconds(sample.home_seconds),
        bytes(sample.up_bytes),
        bytes(sample.down_bytes),
    )
}
