//! How the directories are that a server keeps in step with its volumes, for people and programs.

use crate::units::count;
use replica::{TreeInfo, TreeState};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// One directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeStatus {
    pub volume: String,
    pub path: String,
    /// A server runs that keeps it in step; else the rest says nothing.
    pub kept: bool,
    /// It is not in its place.
    pub away: bool,
    pub read_only: bool,
    /// Its disk has no room.
    pub full: bool,
    /// What devices changed and is not in it yet.
    pub waiting: u64,
    /// Directories in it that the server may not look into.
    pub left_out: Vec<String>,
    /// Why something that devices did is not in it yet, though it was tried several times.
    #[serde(default)]
    pub hindered: Vec<String>,
    /// Why nothing could be carried over lately.
    pub trouble: Option<String>,
}

impl From<TreeInfo> for TreeStatus {
    fn from(info: TreeInfo) -> TreeStatus {
        let kept = info.state.is_some();
        let TreeState { away, read_only, full, waiting, barred, hindered, trouble } =
            info.state.unwrap_or_default();
        let left_out = barred.iter().map(|path| info.path.join(path).display().to_string());
        TreeStatus {
            volume: info.volume,
            left_out: left_out.collect(),
            path: info.path.display().to_string(),
            kept,
            away,
            read_only,
            full,
            waiting,
            hindered,
            trouble,
        }
    }
}

impl TreeStatus {
    /// What is not as it should be, a sentence each.
    pub fn troubles(&self) -> Vec<String> {
        let mut said = Vec::new();
        if self.away {
            said.push(
                "it is gone, or another is in its place: nothing is carried over until it is back"
                    .to_owned(),
            );
        }
        let waiting = match self.waiting {
            0 => String::new(),
            waiting => format!(" ({} so far)", count(waiting, "change")),
        };
        if self.read_only {
            said.push(format!("it is read-only: what devices do waits{waiting}"));
        }
        if self.full {
            said.push(format!("its disk is full: what devices do waits{waiting}"));
        }
        for path in &self.left_out {
            said.push(format!(
                "{path} is left out, and devices see it as it was: the server may not look into \
                 it; give the user that the server runs as leave to read and enter it"
            ));
        }
        for why in &self.hindered {
            said.push(format!("what devices did there waits, and is tried now and then: {why}"));
        }
        if let Some(trouble) = &self.trouble {
            said.push(format!("nothing could be carried over lately: {trouble}"));
        }
        said
    }

    pub fn text(&self) -> String {
        let mut text = format!("{}: kept in step with {}\n", self.volume, self.path);
        let mut line = |name: &str, what: &str| {
            let _ = writeln!(text, "  {name:<9} {what}");
        };
        let troubles = self.troubles();
        match (self.kept, self.waiting) {
            (false, _) => line("state", "no server runs here that keeps it"),
            (true, _) if !troubles.is_empty() => {
                troubles.iter().for_each(|trouble| line("trouble", trouble));
            }
            (true, 0) => line("state", "in step"),
            (true, waiting) => {
                let waiting = count(waiting, "change");
                line("state", &format!("{waiting} of devices not in it yet"));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> TreeStatus {
        let (volume, path) = ("main".into(), "/home/shared".into());
        TreeStatus { volume, path, kept: true, ..TreeStatus::default() }
    }

    #[test]
    fn a_tree_that_is_in_step_is_said_to_be() {
        let said = "main: kept in step with /home/shared\n  state     in step\n";
        assert_eq!(tree().text(), said);
        let said = TreeStatus { kept: false, ..tree() }.text();
        assert!(said.contains("no server runs"), "{said}");
        let said = TreeStatus { waiting: 1, ..tree() }.text();
        assert!(said.contains("1 change of devices not in it yet"), "{said}");
    }

    #[test]
    fn each_trouble_of_a_tree_is_said_with_what_it_means() {
        let left_out = vec!["/home/shared/private".into()];
        let trouble = Some("a disk error".into());
        let troubled = TreeStatus { read_only: true, waiting: 3, left_out, trouble, ..tree() };
        let said = troubled.text();
        assert!(
            said.contains(
                "  trouble   it is read-only: what devices do waits (3 changes so far)\n"
            )
        );
        assert!(said.contains("  trouble   /home/shared/private is left out"), "{said}");
        let hindered = vec!["another file system is mounted at /home/shared/d/e".into()];
        let why = TreeStatus { hindered, ..tree() }.text();
        assert!(why.contains("  trouble   what devices did there waits") && why.ends_with("d/e\n"));
        assert!(said.contains("lately: a disk error\n") && !said.contains("in step\n"), "{said}");
        let troubles = TreeStatus { away: true, full: true, ..tree() }.troubles();
        assert!(troubles[0].starts_with("it is gone") && troubles[1].starts_with("its disk"));
    }
}
