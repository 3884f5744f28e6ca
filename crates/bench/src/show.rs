//! One line of progress that lives: what is being done, for how long, over how many bytes.

use crate::table::{bytes, seconds};
use bench::Link;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(100);

/// On a terminal the line changes as time passes; elsewhere nothing is printed.
pub struct Line {
    bar: ProgressBar,
    start: Instant,
    what: String,
    live: bool,
}

impl Line {
    pub fn new(what: impl Into<String>) -> Self {
        let what = what.into();
        let live = std::io::stderr().is_terminal();
        let bar = if live { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            bar.set_style(style);
        }
        bar.set_message(what.clone());
        bar.enable_steady_tick(EVERY);
        Self { bar, start: Instant::now(), what, live }
    }

    /// Shows where things stand. Counted from the `before` of the link's bytes.
    pub fn look(&self, link: Option<(&Link, u64)>) {
        if !self.live {
            return;
        }
        let mut message = format!("{}  {}", self.what, seconds(self.start.elapsed().as_secs_f64()));
        if let Some((link, before)) = link {
            let over = link.counters().bytes().saturating_sub(before);
            message += &format!("  {} over the link", bytes(over));
        }
        self.bar.set_message(message);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
