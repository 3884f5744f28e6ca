//! A workload's place to run: prepares, measures, and gives up on what takes too long.
//! Holds: a phase that is measured runs at the profile's speed, and its bytes are those from its
//! beginning until everything is at the origin.

use crate::backend::Backend;
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
    /// Until everything was at the origin, the time before included.
    pub home_seconds: f64,
    pub up_bytes: u64,
    pub down_bytes: u64,
    /// Why there are no numbers.
    pub failed: Option<String>,
}

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
        if let Some(link) = self.link {
            link.set_profile(&Profile::lan());
        }
        let prepared = self
            .within_limit("prepare", work)
            .and_then(|()| self.backend.settle(self.limit).context("cannot prepare"));
        if let Some(link) = self.link {
            link.set_profile(self.profile);
        }
        prepared?;
        self.cold()
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
        let (start, before) = (Instant::now(), self.traffic());
        self.within_limit(phase, work).with_context(|| phase.to_owned())?;
        let took = start.elapsed();
        self.backend.settle(self.limit.saturating_sub(took)).with_context(|| phase.to_owned())?;
        let home = start.elapsed();
        if self.link.is_some() {
            let delay = self.profile.up.delay + self.profile.down.delay;
            std::thread::sleep(TRAILING + 2 * delay);
        }
        let after = self.traffic();
        let sample = Sample {
            workload: self.workload.into(),
            phase: phase.into(),
            system: self.system.into(),
            run: self.run,
            seconds: took.as_secs_f64(),
            home_seconds: home.as_secs_f64(),
            up_bytes: after.0 - before.0,
            down_bytes: after.1 - before.1,
            failed: None,
        };
        println!("{}", line(&sample));
        self.samples.push(sample);
        Ok(())
    }

    /// What a phase that failed leaves in the table.
    pub fn failed(&mut self, error: &anyhow::Error) {
        let failed = Some(format!("{error:#}"));
        let (workload, system) = (self.workload.into(), self.system.into());
        self.samples.push(Sample {
            workload,
            phase: "failed".into(),
            system,
            run: self.run,
            seconds: 0.0,
            home_seconds: 0.0,
            up_bytes: 0,
            down_bytes: 0,
            failed,
        });
    }

    fn traffic(&self) -> (u64, u64) {
        let traffic = self.link.map(Link::counters).unwrap_or_default();
        (traffic.up.carried.bytes, traffic.down.carried.bytes)
    }

    /// Does the work in a thread, and makes the file system fail under it when its time is over.
    fn within_limit(
        &mut self,
        what: &str,
        work: impl FnOnce(&Path) -> Result<()> + Send,
    ) -> Result<()> {
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
                if start.elapsed() > self.limit {
                    self.backend.abort();
                    // The thread ends soon, as its calls fail; the scope waits for it.
                    return Err(anyhow!("not done after {:?}", self.limit));
                }
            }
        })
    }
}

fn line(sample: &Sample) -> String {
    let Sample { workload, phase, system, .. } = sample;
    format!(
        "{workload:10} {phase:24} {system:8} {:>8}, home {:>8}, up {:>8}, down {:>8}",
        seconds(sample.seconds),
        seconds(sample.home_seconds),
        bytes(sample.up_bytes),
        bytes(sample.down_bytes),
    )
}
