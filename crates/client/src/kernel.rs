//! The kernel's side of a mount: whom to tell what it must forget, and what it wrote by itself.

use crate::client::{Client, error_of};
use crate::failures::of_missing;
use crate::files::Closing;
use crate::landing::Landing;
use crate::numbers::Numbers;
use crate::types::{Error, Handle, Kernel};
use model::{FileId, Name};
use protocol::Upstream;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::Containers;
use volume::partial::Tree;

/// A machine that stood still for so long was suspended: what the kernel has may not be so any more.
const SUSPENDED_FROM: Duration = Duration::from_secs(1);
const SUSPEND_LOOK_EVERY: Duration = Duration::from_secs(1);
/// Of the names that the kernel has, so many are taken from it after a suspend; the rest it asks for
/// when their time is out.
const NAMES_FORGOTTEN_MAX: usize = 20_000;

#[derive(Default)]
pub(crate) struct TheKernel {
    told: OnceLock<Arc<dyn Kernel>>,
    /// What it wrote by itself and was closed.
    pub closing: Closing,
    pub numbers: Numbers,
    /// What it has told programs is written.
    pub landing: Landing,
}

impl TheKernel {
    /// None: nothing is mounted.
    pub fn get(&self) -> Option<&Arc<dyn Kernel>> {
        self.told.get()
    }

    /// The first one stays.
    pub fn set(&self, kernel: Arc<dyn Kernel>) {
        // A second mount of one client would be the caller's mistake, and harmless.
        let _ = self.told.set(kernel);
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// By which numbers the kernel knows files.
    pub fn numbers(&self) -> &Numbers {
        &self.inner.kernel.numbers
    }

    /// What the kernel knows of a file's attributes, and of its `contents`, it asks for when they are
    /// wanted next.
    pub fn forget_what_is_cached(&self, file: FileId, contents: bool) {
        if let Some(kernel) = self.inner.kernel.get()
            && !kernel.forget_node(file, contents)
        {
            tracing::debug!(%file, "the kernel may show it for a while as it was");
        }
    }

    /// By itself: what else is looked at now and then may wait for a link that is gone.
    pub(crate) async fn run_suspends(&self) {
        let mut suspended = self.inner.world.clock.suspended();
        while !self.is_stopping() {
            self.inner.world.clock.sleep(SUSPEND_LOOK_EVERY).await;
            suspended = self.look_at_suspend(suspended);
        }
    }

    /// In suspend the lease goes on, and the kernel's time-outs do not. `before`: for how long the machine
    /// had been suspended when this was last looked at; gives for how long it has been by now.
    fn look_at_suspend(&self, before: Duration) -> Duration {
        let suspended = self.inner.world.clock.suspended();
        let more = suspended.saturating_sub(before);
        if more < SUSPENDED_FROM {
            return before;
        }
        tracing::info!(for_secs = more.as_secs(), "the machine is back from suspend");
        self.forget_all();
        self.forget_names();
        suspended
    }

    /// Which names there are is asked for again, of all that the kernel was told of.
    fn forget_names(&self) {
        let Some(kernel) = self.inner.kernel.get() else { return };
        kernel.forget_absent();
        match self.names_told() {
            Ok(names) => {
                names.iter().for_each(|(directory, name)| kernel.forget_name(*directory, name));
            }
            Err(error) => {
                tracing::debug!(%error, "the kernel may show names for a while as they were")
            }
        }
    }

    /// Names of what the kernel was told of, whether or not they count.
    fn names_told(&self) -> Result<Vec<(FileId, Name)>, Error> {
        let told: BTreeSet<FileId> = self.known().told().take(NAMES_FORGOTTEN_MAX).collect();
        let read = self.inner.tables.read().map_err(error_of)?;
        let everything = 0;
        let tree = Tree::new(&*read, everything);
        let (mut found, mut left) = (Vec::new(), NAMES_FORGOTTEN_MAX);
        for directory in std::iter::once(FileId::ROOT).chain(told.iter().copied()) {
            if left == 0 {
                break;
            }
            let names = tree.some_entries(directory, left).map_err(of_missing)?;
            left = left.saturating_sub(names.len());
            let known = names.into_iter().filter(|(_, file)| told.contains(file));
            found.extend(known.map(|(name, _)| (directory, name)));
        }
        Ok(found)
    }

    /// A file was written to through this handle: the kernel does not see it where it has the file
    /// cached by another number.
    pub fn is_written(&self, file: FileId, handle: Handle) {
        let numbers = self.numbers();
        if !numbers.has_several(file) {
            return;
        }
        let current = numbers.current(file);
        // What is open is let go first: the kernel may wait for who needs it.
        let astray = self.files().astray(handle, current);
        if let Some(number) = astray {
            self.is_changed_by(file, number);
        }
    }

    /// Its contents were changed by this number: what the kernel has by others it asks for when it is
    /// wanted next.
    pub fn is_changed_by(&self, file: FileId, number: u64) {
        if self.numbers().has_several(file)
            && let Some(kernel) = self.inner.kernel.get()
            && !kernel.forget_others(file, number)
        {
            tracing::debug!(%file, "the kernel may show it for a while as it was");
        }
    }
}
