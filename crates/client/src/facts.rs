//! What programs can ask of a file by its extended attributes: `user.farfs.NAME`.
//! Holds: they are made up when they are read. They are not listed, so that no copy of a file takes
//! them along, and cannot be set.

use crate::client::Client;
use crate::types::{Error, Explanation, Step};
use model::FileId;
use protocol::{Objection, Reach, Upstream};
use store::Containers;

const PREFIX: &[u8] = b"user.farfs.";

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
        let value = said(&explained, is_written, name);
        value.map(String::into_bytes).ok_or(Error::Objection(Objection::NoAttribute).into())
    }
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
}
