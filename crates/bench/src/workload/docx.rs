//! A document as office programs save it: text and pictures in a zip archive, which is packed anew
//! with every change.
//! From: LBFS, Evaluation (a document of 1.4 MB), in the form that has become usual since.

use super::{Material, document};
use crate::stage::Stage;
use crate::zip::{self, Stamp};
use anyhow::{Context, Result, ensure};
use bench::random::Random;
use std::fmt::Write;
use std::fs;

const NAME: &str = "report.docx";
const PARAGRAPHS: usize = 7_500;
const PICTURE_BYTES: usize = 900_000;
/// So many words are known to whoever wrote it.
const VOCABULARY: u64 = 6_000;
const SAVES: [&str; 2] = ["save", "save again"];

/// What is packed: the text's paragraphs, and a picture, which is compressed by itself.
struct Document {
    paragraphs: Vec<String>,
    picture: Vec<u8>,
    saved: u32,
}

pub fn run(stage: &mut Stage, _material: &Material) -> Result<()> {
    let mut document = Document::new();
    let first = document.pack()?;
    stage.prepare(|root| fs::write(root.join(NAME), &first).context("cannot write"))?;
    stage.phase("open", |root| {
        let read = fs::read(root.join(NAME)).context("cannot read the document")?;
        ensure!(read == first, "the document is not what was written");
        Ok(())
    })?;
    for phase in SAVES {
        save(stage, phase, &mut document)?;
    }
    Ok(())
}

/// One save, by a machine that has the document.
pub fn run_save(stage: &mut Stage, _material: &Material) -> Result<()> {
    let mut document = Document::new();
    let first = document.pack()?;
    stage.prepare_warm(|root| fs::write(root.join(NAME), &first).context("cannot write"))?;
    save(stage, SAVES[0], &mut document)
}

fn save(stage: &mut Stage, phase: &str, document: &mut Document) -> Result<()> {
    document.change();
    let packed = document.pack()?;
    stage.phase_closing(phase, |root| document::save(root, NAME, &packed))
}

impl Document {
    fn new() -> Self {
        let mut random = Random::new(2007);
        let words: Vec<_> = (0..VOCABULARY).map(|_| word(&mut random)).collect();
        let paragraphs = (0..PARAGRAPHS).map(|_| paragraph(&mut random, &words)).collect();
        let mut picture = vec![0; PICTURE_BYTES];
        random.fill(&mut picture);
        Self { paragraphs, picture, saved: 0 }
    }

    /// A paragraph more in the middle, and another time at which it was saved.
    fn change(&mut self) {
        self.saved += 1;
        let at = self.paragraphs.len() / 2 + self.saved as usize * 100;
        self.paragraphs.insert(at, format!("This paragraph came with save number {}.", self.saved));
    }

    fn pack(&self) -> Result<Vec<u8>> {
        let head = "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\n";
        let mut text = format!("{head}<w:document xmlns:w=\"urn:w\"><w:body>");
        for paragraph in &self.paragraphs {
            write!(text, "<w:p><w:pPr/><w:r><w:t>{paragraph}</w:t></w:r></w:p>")?;
        }
        text += "</w:body></w:document>";
        let second = 36_000 + self.saved * 60;
        let core = format!(
            "{head}<cp:coreProperties><dcterms:modified>2026-01-01T10:{:02}:00Z\
             </dcterms:modified><cp:revision>{}</cp:revision></cp:coreProperties>",
            self.saved, self.saved,
        );
        let types = format!(
            "{head}<Types><Default Extension=\"xml\" ContentType=\"application/xml\"/></Types>"
        );
        let entries: [(&str, &[u8]); 4] = [
            ("[Content_Types].xml", types.as_bytes()),
            ("word/document.xml", text.as_bytes()),
            ("word/media/image1.png", &self.picture),
            ("docProps/core.xml", core.as_bytes()),
        ];
        zip::pack(&entries, Stamp::of(second))
    }
}

fn word(random: &mut Random) -> String {
    let letters = 2 + random.below(8);
    (0..letters).map(|_| char::from(b'a' + random.below(26) as u8)).collect()
}

/// Words as often as people use them: the first of the vocabulary more than the last.
fn paragraph(random: &mut Random, words: &[String]) -> String {
    let count = 8 + random.below(20);
    let mut text = String::new();
    for _ in 0..count {
        let bound = 1 + random.below(words.len() as u64);
        text += &words[random.below(bound) as usize];
        text.push(' ');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_the_same_every_time_and_as_large_as_it_should_be() {
        let packed = Document::new().pack().unwrap();
        assert_eq!(packed, Document::new().pack().unwrap());
        assert!((1_300_000..1_500_000).contains(&packed.len()), "{}", packed.len());
    }

    #[test]
    fn a_change_in_the_middle_changes_all_that_is_packed_after_it() {
        let mut document = Document::new();
        let before = document.pack().unwrap();
        document.change();
        let after = document.pack().unwrap();
        let same = before.iter().zip(&after).skip(300).take_while(|(one, other)| one == other);
        let same = same.count();
        assert!((50_000..before.len() / 2).contains(&same), "{same}");
    }
}
