//! What happened in a run, line by line, with a hash over all of it: two runs of one seed give
//! the same hash, or something in them was not drawn from the seed.

use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use world::{Clock, Moment};

/// FNV-1a, 64 bits.
const HASH_START: u64 = 0xcbf2_9ce4_8422_2325;
const HASH_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Clones write the same trace.
#[derive(Clone)]
pub struct Trace {
    clock: Clock,
    start: Moment,
    written: Arc<Mutex<Written>>,
}

struct Written {
    hash: u64,
    lines: Vec<String>,
    print: bool,
}

impl Trace {
    /// With `print` every line is printed as it comes.
    pub fn new(clock: Clock, print: bool) -> Trace {
        let start = clock.moment();
        let written = Written { hash: HASH_START, lines: Vec::new(), print };
        Trace { clock, start, written: Arc::new(Mutex::new(written)) }
    }

    pub fn note(&self, who: &str, what: impl Display) {
        let at = self.clock.moment().since(self.start);
        let line = format!("{:>9.3} {who:<8} {what}", at.as_secs_f64());
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        for byte in line.bytes() {
            written.hash = (written.hash ^ u64::from(byte)).wrapping_mul(HASH_PRIME);
        }
        if written.print {
            println!("{line}");
        }
        written.lines.push(line);
    }

    pub fn hash(&self) -> u64 {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).hash
    }

    pub fn lines(&self) -> Vec<String> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).lines.clone()
    }
}
