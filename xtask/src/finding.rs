//! What a rule has to say about one place: the shape of every message of `tidy` and `deny`.

use std::fmt;

use anyhow::{Result, bail};

/// One breach of one rule. `line` counts from 1; 0 stands for the file as a whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub file: String,
    pub line: usize,
    pub what: String,
    pub instead: String,
}

impl Finding {
    pub fn new(
        file: &str,
        line: usize,
        what: impl Into<String>,
        instead: impl Into<String>,
    ) -> Self {
        Finding { file: file.to_owned(), line, what: what.into(), instead: instead.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}\n    instead: {}", self.what, self.instead)
    }
}

/// Prints every finding and fails if there is one.
pub fn report(chore: &str, mut findings: Vec<Finding>) -> Result<()> {
    findings.sort();
    findings.dedup();
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        1 => bail!("{chore}: one finding, above"),
        many => bail!("{chore}: {many} findings, above"),
    }
}
