//! A document, opened and saved as editors do: into a new file that takes the old one's name.
//! From: LBFS, Evaluation (a 1.4 MB document, changed a little).

use super::Material;
use crate::stage::Stage;
use anyhow::{Context, Result};
use bench::random::Random;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

const DOCUMENT_BYTES: usize = 1_400_000;
const NAME: &str = "report.txt";
const WORDS: &[&str] = &[
    "the",
    "sea",
    "of",
    "and",
    "station",
    "a",
    "wind",
    "in",
    "measured",
    "to",
    "north",
    "was",
    "ice",
    "depth",
    "with",
    "current",
    "by",
    "night",
    "for",
    "temperature",
    "at",
    "salinity",
];

pub fn run(stage: &mut Stage, _material: &Material) -> Result<()> {
    let mut text = document();
    stage.prepare(|root| fs::write(root.join(NAME), &text).context("cannot write the document"))?;
    stage.phase("open", |root| {
        let read = fs::read(root.join(NAME)).context("cannot read the document")?;
        anyhow::ensure!(read == text, "the document is not what was written");
        Ok(())
    })?;
    for (number, phase) in ["save", "save again", "save once more"].into_iter().enumerate() {
        change(&mut text, number);
        stage.phase_closing(phase, |root| save(root, NAME, &text))?;
    }
    Ok(())
}

/// One save, by a machine that has the document.
pub fn run_save(stage: &mut Stage, _material: &Material) -> Result<()> {
    let mut text = document();
    stage.prepare_warm(|root| fs::write(root.join(NAME), &text).context("cannot write"))?;
    change(&mut text, 1);
    stage.phase_closing("save", |root| save(root, NAME, &text))
}

/// Words and numbers by chance, the same every time: text that compresses as text does.
fn document() -> Vec<u8> {
    let mut random = Random::new(14);
    let mut text = String::with_capacity(DOCUMENT_BYTES + 100);
    while text.len() < DOCUMENT_BYTES {
        match random.below(30) {
            0 => text += ".\n",
            1 => text += &random.below(100_000).to_string(),
            _ => text += WORDS[random.below(WORDS.len() as u64) as usize],
        }
        text += " ";
    }
    text.into_bytes()
}

/// A sentence more, somewhere in the middle.
fn change(text: &mut Vec<u8>, number: usize) {
    let at = text.len() / 5 * (number + 1);
    let sentence = format!("This sentence is change number {number}. ");
    text.splice(at..at, sentence.into_bytes());
}

/// Into a new file that takes the old one's name. Returns how long `fsync` and `close` took.
pub fn save(root: &Path, name: &str, contents: &[u8]) -> Result<Duration> {
    let unfinished = root.join(format!(".{name}.new"));
    let mut file = fs::File::create(&unfinished).context("cannot make the new version")?;
    file.write_all(contents).context("cannot write the new version")?;
    let closing = Instant::now();
    file.sync_all().context("cannot sync the new version")?;
    drop(file);
    let closing = closing.elapsed();
    fs::rename(&unfinished, root.join(name)).context("cannot replace the document")?;
    Ok(closing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_the_same_every_time_and_changes_are_small() {
        let (mut text, same) = (document(), document());
        assert_eq!(text, same);
        assert!(text.len() >= DOCUMENT_BYTES);
        change(&mut text, 1);
        assert!(text != same && text.len() < same.len() + 100);
    }
}
