//! Of what need not be current here, nobody elsewhere has to wait until this client has been told.
//! Holds: before this client goes by what is current, the replica above knows that it is to be waited
//! for: until then its lease does not count.
//! From: DESIGN, "The client" (a subtree under a bounded policy is told without waiting).

use super::{Consistency, Policies};
use crate::asking::unexpected;
use crate::client::Client;
use crate::types::Error;
use protocol::{Class, Mode, Patience, Request, Response, Upstream};
use store::Containers;

/// What others need not wait for, in a mode.
fn patience(policies: &Policies, mode: Mode) -> Patience {
    let mut patience = Patience::default();
    for (file, policy) in &policies.policies {
        match (policy.consistency, mode) {
            (None, _) => {}
            (Some(Consistency::Strict), _) | (Some(Consistency::Bounded(_)), Mode::Connected) => {
                patience.but.push(*file)
            }
            (Some(Consistency::Bounded(_) | Consistency::Manual), _) => patience.below.push(*file),
        }
    }
    match patience.below.is_empty() {
        true => Patience::default(),
        false => patience,
    }
}

/// Whether somebody has to wait by the second who need not by the first.
fn is_stricter(told: &Patience, now: &Patience) -> bool {
    let is_less = told.below.iter().any(|file| !now.below.contains(file));
    is_less || (!told.below.is_empty() && now.but.iter().any(|file| !told.but.contains(file)))
}

impl<U: Upstream, C: Containers> Client<U, C> {
    fn patience_now(&self) -> Patience {
        let mode = self.connection().mode;
        self.patience_in(mode)
    }

    fn patience_in(&self, mode: Mode) -> Patience {
        patience(&self.policies(), mode)
    }

    /// The mode or a policy has changed. If the replica above has to be told, nothing counts here
    /// until it has been.
    pub(crate) fn patience_changed(&self) {
        if !self.inner.keeping.choosing.is_any() && self.connection().patience.below.is_empty() {
            return;
        }
        let now = self.patience_now();
        let mut connection = self.connection();
        connection.owes_patience |= connection.attached && is_stricter(&connection.patience, &now);
    }

    /// Tells the replica above, if that has changed.
    pub(crate) async fn tell_patience(&self) -> Result<(), Error> {
        if !self.inner.keeping.choosing.is_any() && self.connection().patience.below.is_empty() {
            return Ok(());
        }
        let now = self.patience_now();
        {
            let connection = self.connection();
            if !connection.attached || !connection.heeds || connection.patience == now {
                return Ok(());
            }
        }
        let session = self.connection().sessions;
        match self.ask(Class::Interactive, Request::Patience(now.clone())).await? {
            Response::Heeded => {
                let mut connection = self.connection();
                if connection.sessions == session {
                    connection.owes_patience =
                        is_stricter(&now, &self.patience_in(connection.mode));
                    connection.patience = now;
                }
                Ok(())
            }
            other => Err(unexpected("patience", &other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Policy;
    use super::*;
    use model::FileId;

    #[test]
    fn who_goes_by_what_is_current_is_waited_for() {
        let mut policies = Policies::default();
        for (file, consistency) in [
            (1, Some(Consistency::Bounded(9))),
            (2, Some(Consistency::Strict)),
            (3, Some(Consistency::Manual)),
            (4, None),
        ] {
            let policy = Policy { consistency, ask_above: Some(9), since: 0, place: None };
            policies.policies.insert(FileId(file), policy);
        }
        let of = |policies: &Policies, mode| {
            let Patience { below, but } = patience(policies, mode);
            let numbers = |files: Vec<FileId>| files.iter().map(|file| file.0).collect::<Vec<_>>();
            (numbers(below), numbers(but))
        };
        assert_eq!(of(&policies, Mode::Partial), (vec![1, 3], vec![2]));
        assert_eq!(of(&policies, Mode::Connected), (vec![3], vec![1, 2]));
        let [weak, near] = [Mode::Partial, Mode::Connected].map(|mode| patience(&policies, mode));
        assert!(is_stricter(&weak, &near) && !is_stricter(&near, &weak));
        assert!(is_stricter(&weak, &Patience::default()));
        assert!(!is_stricter(&Patience::default(), &weak));
        assert!(!is_stricter(&weak, &weak));
        policies.policies.remove(&FileId(3));
        assert_eq!(of(&policies, Mode::Connected), (vec![], vec![]));
    }
}
