//! What programs can ask of a file by its extended attributes: `user.farfs.NAME`.
//! Holds: they are made up when they are read. They are not listed, so that no copy of a file takes
//! them along, and cannot be set.

use crate::client::Client;
use crate::pending::PendingLog;
use crate::types::{Error, Explanation, Step, Stop};
use model::FileId;
use protocol::{Objection, Reach, Upstream};
use store::Containers;

const PREFIX: &[u8] = b"user.farfs.";
/// Of what is pending the oldest counts.
const FILES_LOOKED_AT: usize = 1;

/// Whether an extended attribute is one of these, whether or not there is one of that name.
pub fn is_fact(name: &[u8]) -> bool {
    name.starts_with(PREFIX)
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// What `user.farfs.NAME` says of a file, as text.
    pub fn fact(&self, file: FileId, name: &[u8]) -> Step<Vec<u8>> {
        let explained = self.explain(file, "")?;
        let is_written = self.files().written_version(file).is_some();
        let name = name.strip_prefix(PREFIX).unwrap_or_default();
        if name == b"waits-for" || name.starts_with(b"pending-") {
            let log = self.pending_log(Some(file), FILES_LOOKED_AT)?;
            let value = said_of_pending(&log, is_written, name);
            return value.map(String::into_bytes).ok_or(none());
        }
        let value = said(&explained, is_written, name);
        value.map(String::into_bytes).ok_or(none())
    }
}

fn none() -> Stop {
    Error::Objection(Objection::NoAttribute).into()
}

/// Of what is pending of a file. Of a directory's entries the oldest tells.
fn said_of_pending(log: &PendingLog, is_written: bool, name: &[u8]) -> Option<String> {
    let oldest = log.files.first();
    Some(match name {
        b"pending-bytes" => log.bytes.to_string(),
        b"pending-age" => oldest?.oldest_secs.to_string(),
        // What is written leaves when it is closed.
        b"waits-for" if oldest.is_none() && is_written => "close".into(),
        b"waits-for" => oldest?.waits_for.to_string(),
        _ => return None,
    })
}

fn said(explained: &Explanation, is_written: bool, name: &[u8]) -> Option<String> {
    Some(match name {
        b"reach" => match explained.reach {
            Reach::Safe if !is_written => "safe".into(),
            Reach::Visible if !is_written => "visible".into(),
            Reach::Home if !is_written => "home".into(),
            _ => "logged".into(),
        },
        // What is written and not closed becomes one.
        b"pending" => (explained.pending.len() + usize::from(is_written)).to_string(),
        b"cached" => explained.bytes_here.to_string(),
        b"policy" => explained.policy.clone(),
        b"version" => explained.version.clone()?,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pending::{HeldBack, PendingFile, WaitsFor};

    #[test]
    fn a_file_that_is_written_to_is_on_this_machine_alone() {
        let explained = Explanation {
            path: String::new(),
            file: 7,
            kind: "file".into(),
            size: 10,
            version: None,
            version_at_origin: None,
            bytes_here: 4,
            reach: Reach::Home,
            pending: Vec::new(),
            policy: "bounded 60".into(),
            stale: false,
            why: Vec::new(),
        };
        let said = |is_written, name: &str| said(&explained, is_written, name.as_bytes());
        assert_eq!(said(false, "reach").as_deref(), Some("home"));
        assert_eq!(said(true, "reach").as_deref(), Some("logged"));
        assert_eq!(said(true, "pending").as_deref(), Some("1"));
        assert_eq!(said(false, "cached").as_deref(), Some("4"));
        assert_eq!(said(false, "policy").as_deref(), Some("bounded 60"));
        assert_eq!(said(false, "version"), None, "it has none");
        assert_eq!(said(false, "colour"), None);
    }

    #[test]
    fn of_what_is_pending_the_oldest_says_how_old_it_is_and_what_it_waits_for() {
        let said = |log: &PendingLog, is_written, name: &str| {
            said_of_pending(log, is_written, name.as_bytes())
        };
        let mut log = PendingLog::default();
        assert_eq!(said(&log, false, "pending-bytes").as_deref(), Some("0"));
        assert_eq!(said(&log, false, "pending-age"), None);
        assert_eq!(said(&log, false, "waits-for"), None);
        assert_eq!(said(&log, true, "waits-for").as_deref(), Some("close"));
        log.bytes = 7;
        log.files.push(PendingFile {
            file: 3,
            path: None,
            updates: 1,
            bytes: 7,
            sent: 0,
            oldest_secs: 9,
            newest: String::new(),
            on_its_way: false,
            waits_for: WaitsFor::HeldBack(HeldBack::Paused),
            upto: 7,
        });
        assert_eq!(said(&log, true, "pending-bytes").as_deref(), Some("7"));
        assert_eq!(said(&log, true, "pending-age").as_deref(), Some("9"));
        assert_eq!(said(&log, true, "waits-for").as_deref(), Some("held-back paused"));
        for (waits_for, text) in [
            (WaitsFor::Turn, "turn"),
            (WaitsFor::Answer, "answer"),
            (WaitsFor::Behind { file: 4, path: Some("a/b".into()) }, "behind a/b"),
            (WaitsFor::Behind { file: 4, path: None }, "behind file 4"),
        ] {
            log.files[0].waits_for = waits_for;
            assert_eq!(said(&log, false, "waits-for").as_deref(), Some(text));
        }
    }
}
