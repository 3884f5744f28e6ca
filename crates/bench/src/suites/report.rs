//! What the suites found, as a document: one section for each, of its last run of the day.

use crate::machine::{self, Machine};
use crate::table::Table;
use anyhow::{Context, Result};
use bench::command::run;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Serialize, Deserialize)]
pub struct Report {
    date: String,
    machine: Machine,
    sections: Vec<Section>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Section {
    /// The suite and its version.
    title: String,
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
    pub said: Vec<String>,
    /// What passes on the disk and fails here.
    pub worse: Vec<String>,
    /// What could not be run here, or anywhere, and what is known to fail and why.
    pub exceptions: Vec<String>,
}

impl Section {
    pub fn new(title: &str, heads: &[&str]) -> Self {
        Self {
            title: title.into(),
            heads: heads.iter().map(|head| (*head).into()).collect(),
            rows: Vec::new(),
            said: Vec::new(),
            worse: Vec::new(),
            exceptions: Vec::new(),
        }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    fn suite(&self) -> &str {
        self.title.split_whitespace().next().unwrap_or_default()
    }

    fn to_markdown(&self) -> String {
        let mut table = Table::new(1, &self.heads);
        self.rows.iter().for_each(|row| table.row(row.clone()));
        let mut text = format!("\n## {}\n\n{}", self.title, table.to_markdown());
        let list = |of: &[String]| of.iter().map(|line| format!("- {line}\n")).collect::<String>();
        text += "\nPasses on the disk and not here:";
        text += &match self.worse.is_empty() {
            true => " nothing.\n".into(),
            false => format!("\n\n{}", list(&self.worse)),
        };
        if !self.exceptions.is_empty() {
            text += &format!("\nNot run, or explained:\n\n{}", list(&self.exceptions));
        }
        for said in &self.said {
            text += &format!("\n{said}\n");
        }
        text
    }
}

impl Report {
    pub fn new(work: &Path, section: Section) -> Self {
        let (date, machine) = (machine::today(), Machine::this(work));
        Self { date, machine, sections: vec![section] }
    }

    /// Adds to what was found today, in the place of what the same suite found before.
    pub fn save(mut self, out: &Path) -> Result<PathBuf> {
        let name = format!("{}-posix", self.date);
        let (json, text) = (out.join(format!("{name}.json")), out.join(format!("{name}.md")));
        if let Some(old) = fs::read(&json).ok().and_then(|text| serde_json::from_slice(&text).ok())
        {
            self = self.after(old);
        }
        fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
        let said = fs::read_to_string(&text).ok().map(|old| written_by_people(&old).to_owned());
        let all = serde_json::to_string_pretty(&self).context("cannot write JSON")? + "\n";
        for (path, written) in
            [(&json, all), (&text, self.to_markdown() + &said.unwrap_or_default())]
        {
            fs::write(path, written).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(text)
    }

    fn after(mut self, old: Report) -> Self {
        let mut sections = old.sections;
        sections.retain(|one| self.sections.iter().all(|new| new.suite() != one.suite()));
        sections.append(&mut self.sections);
        Self { sections, ..self }
    }

    fn to_markdown(&self) -> String {
        let sections: String = self.sections.iter().map(Section::to_markdown).collect();
        format!(
            "# {}, POSIX\n\n- Machine: {}\n\nPublished suites (`bench suites`), each on the disk \
             of this machine and then on new volumes whose origin is on it too.\n{sections}",
            self.date,
            self.machine.words()
        )
    }
}

/// The last part of a report, which stays when the tables change.
const SAID: &str = "\n## What it says\n";

fn written_by_people(text: &str) -> &str {
    text.find(SAID).map_or("", |at| &text[at..])
}

/// What a program says of itself, or else its name.
pub fn version(program: &Path) -> String {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let said = run(Command::new(program).arg("--version")).unwrap_or_default();
    if said.trim().is_empty() { name } else { said.trim().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(title: &str, cell: &str) -> Section {
        let mut section = Section::new(title, &["file system", "failed"]);
        section.row(["ext4".into(), cell.into()]);
        section
    }

    fn report(title: &str, cell: &str) -> Report {
        Report::new(Path::new("/"), section(title, cell))
    }

    #[test]
    fn a_suite_that_is_run_again_takes_its_own_place_alone() {
        let both = report("one 1.0", "11").after(report("two 1.0", "22"));
        let text = report("one 1.1", "33").after(both).to_markdown();
        assert!(text.contains("## one 1.1") && text.contains("| ext4 | 33 |"), "{text}");
        assert!(text.contains("## two 1.0") && !text.contains("11 |"), "{text}");
        assert_eq!(written_by_people(&text), "");
        assert_eq!(written_by_people(&(text + SAID + "much")), SAID.to_owned() + "much");
    }

    #[test]
    fn what_is_worse_is_listed() {
        let mut section = section("one", "1");
        assert!(section.to_markdown().contains("not here: nothing."));
        section.worse.push("open::x, on FarFS: no".into());
        section.exceptions.push("open::y".into());
        let text = section.to_markdown();
        assert!(text.contains("\n- open::x, on FarFS: no\n"), "{text}");
        assert!(text.contains("explained:\n\n- open::y\n"), "{text}");
    }
}
