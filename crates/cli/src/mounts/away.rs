//! Mounts that were taken out of sight while programs used them (`farfs umount --lazy`, `umount -l`): their
//! process goes on until the last of these has ended, and has the state directory as long.

use super::{Entry, in_kernel};
use crate::processes;
use std::path::PathBuf;

impl Entry {
    /// Whether what it mounted is where it was mounted no more, as its process sees it. Of what cannot be
    /// looked at: no.
    pub fn is_away(&self) -> bool {
        let Some(places) = self.places() else { return false };
        !places.contains(&self.mountpoint)
    }

    /// Where its process sees it.
    fn places(&self) -> Option<Vec<PathBuf>> {
        let device = self.device.as_ref()?;
        let table = std::fs::read(format!("/proc/{}/mountinfo", self.pid)).ok()?;
        let lines = table.split(|byte| *byte == b'\n').filter_map(in_kernel);
        Some(lines.filter(|line| line.device == *device).map(|line| line.at).collect())
    }

    /// Who still uses what is away: other places where it is mounted, and programs that can be seen.
    pub fn who_uses_it(&self) -> Vec<String> {
        let places = self.places().unwrap_or_default().into_iter();
        let places = places.map(|at| format!("the mount at {}", at.display()));
        let device = self.device.as_deref().unwrap_or_default();
        places.chain(processes::using_device(device)).collect()
    }

    /// What to say of one that is away and used.
    pub fn away(&self, users: &[String]) -> String {
        let (pid, at) = (self.pid, self.mountpoint.display());
        let who = users.join(", ");
        format!(
            "the mount at {at} was taken out of sight and is still used by {who}. Its farfs process {pid} \
             ends when nobody uses it any more, and then its state directory is free; `kill {pid}` ends it \
             now, and whoever uses it gets errors"
        )
    }
}
