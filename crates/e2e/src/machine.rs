//! A machine on which an ordinary user may mount: a mount namespace with a /dev/fuse that everybody may
//! open, as udev makes it.

use crate::process::{Process, Ran, run};
use crate::wait::eventually;
use crate::world::{World, marked};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The ordinary user, and his group.
pub const USER: u32 = 1000;
const READY_BOUND: Duration = Duration::from_secs(10);

pub struct Machine {
    holder: Process,
}

impl Machine {
    pub fn new(world: &World) -> Machine {
        let devices = world.folder("devices").display().to_string();
        let script = format!(
            "mount -t tmpfs -o dev,mode=755 none {devices}
             mknod {devices}/fuse c 10 229 && chmod 666 {devices}/fuse
             mount --bind {devices}/fuse /dev/fuse
             echo ready >&2; exec sleep 600"
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-ec", &script]);
        let (holder, _out) = world.process(command, "machine");
        eventually(READY_BOUND, "the namespace is there", || holder.said().contains("ready"));
        Machine { holder }
    }

    /// The user's home, with a folder to mount at.
    ///
    /// # Panics
    /// If it cannot be given to him.
    pub fn home(world: &World) -> PathBuf {
        let home = world.folder("home");
        for folder in ["home", "home/work", "home/run"] {
            let folder = world.folder(folder);
            std::os::unix::fs::chown(&folder, Some(USER), Some(USER))
                .unwrap_or_else(|error| panic!("cannot give {}: {error}", folder.display()));
        }
        home
    }

    /// Runs a line of shell there, as an ordinary user.
    pub fn shell(&self, home: &Path, line: &str) -> Ran {
        let mut command = self.command();
        let ids = [format!("--reuid={USER}"), format!("--regid={USER}"), "--clear-groups".into()];
        command.arg("setpriv").args(ids).args(["sh", "-c", line]).current_dir("/");
        command.env("HOME", home).env("XDG_RUNTIME_DIR", home.join("run"));
        command.env_remove("XDG_STATE_HOME").env_remove("XDG_CONFIG_HOME");
        run(&mut command)
    }

    /// Runs what is added to it there, as root.
    pub fn command(&self) -> Command {
        let mut command = Command::new("nsenter");
        marked(&mut command);
        command.args([format!("--mount=/proc/{}/ns/mnt", self.holder.pid()), "--".into()]);
        command
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.holder.kill();
    }
}
