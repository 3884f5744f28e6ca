//! `farfs mount`.

use crate::exit::{self, Exit, fail};
use crate::plan::Consent;
use crate::wishes::{self, Wishes};
use crate::{background, config, daemon, logging, output, plan, recovery};
use anyhow::Result;
use sd_notify::NotifyState;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Mount a volume
///
/// Returns when the mount can be used. The first time, the URL is the one that `farfs invite`
/// printed; it is good once. Later the device is known, and neither the invitation nor a
/// connection is needed to mount a volume that is cached: where nothing leads to the server it is there
/// at once, and where the server does not answer after 5 seconds. So a line in fstab needs no _netdev,
/// with which systemd would wait for the network. After a kill it may have to look through large files that
/// were being written, and says so: that is waited for however long it takes.
#[derive(clap::Args)]
#[command(
    override_usage = "farfs mount [OPTIONS] [URL] MOUNTPOINT",
    after_help = exit::after(
        "farfs mount 'farfs://files.example.org:7440/main?key=...&invite=...' ~/work
         farfs mount ~/work        (again: the same volume as last time)
         farfs mount --mode partial --cache-size 50G URL ~/work
         In /etc/fstab:  farfs://files.example.org:7440/main?key=... /work farfs \
         nofail,allow_other,x-systemd.requires-mounts-for=/var/lib/farfs 0 0",
        &[Exit::Unreachable, Exit::TurnedAway, Exit::Busy, Exit::Damaged, Exit::NotFound],
    )
)]
pub struct Mount {
    /// farfs://HOST:PORT/VOLUME?key=...[&invite=...]; without it, what the configuration says of
    /// the mount point, or what was mounted there last
    // Which of the two is missing is told by their number: so options may stand between them.
    #[arg(value_name = "URL")]
    first: OsString,
    /// A directory that exists
    #[arg(value_name = "MOUNTPOINT")]
    second: Option<PathBuf>,
    #[command(flatten)]
    wishes: Wishes,
    #[command(flatten)]
    consent: Consent,
    /// Options as mount(8) writes them: state=DIR,cache_size=10G,mode=auto,ro,... Set-user-id
    /// programs and devices do not count in the volume (nosuid,nodev), unless root says suid, dev
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Stay in the foreground and write messages to the terminal
    #[arg(long, short = 'f')]
    foreground: bool,
}

/// The last of one or two words is the mount point.
fn parted(first: OsString, second: Option<PathBuf>) -> Result<(Option<String>, PathBuf)> {
    let Some(mountpoint) = second else {
        if first.to_string_lossy().starts_with("farfs://") {
            return Err(fail(
                Exit::Usage,
                "a URL alone does not say where to mount it: give a directory after it, as in \
                 `farfs mount URL ~/work`",
            ));
        }
        return Ok((None, first.into()));
    };
    let url = first
        .into_string()
        .map_err(|url| fail(Exit::Usage, format!("{} is no URL", url.display())))?;
    Ok((Some(url), mountpoint))
}

impl Mount {
    pub fn run(self) -> Result<()> {
        let options = wishes::from_options(&self.options, false)?;
        let configs = config::read()?;
        let wishes = self.wishes.or(options);
        let (url, mountpoint) = parted(self.first, self.second)?;
        let plan = plan::decide(&configs, url, &mountpoint, wishes, self.consent)?;
        if !self.foreground {
            return background::start(&plan);
        }
        let ready = |damage: Vec<String>| {
            damage.iter().for_each(output::tell);
            let _ = sd_notify::notify(&[NotifyState::Ready]);
            let at = plan.mountpoint.display().to_string();
            output::tell(format_args!("mounted at {}", output::name(&at)));
            Ok(())
        };
        let log = |_: &std::path::Path| {
            logging::to_stderr();
            Ok(())
        };
        let bound = plan.answer_within.saturating_add(recovery::WITHOUT_HEADWAY);
        daemon::run(&plan, log, goes_on(bound), ready)
    }
}

/// Tells the user once, and systemd each time that it is to wait for so long from now on.
fn goes_on(bound: Duration) -> impl FnMut() + Send + 'static {
    let extended = NotifyState::ExtendTimeoutUsec(bound.as_micros().try_into().unwrap_or(u32::MAX));
    let mut told = false;
    move || {
        if !std::mem::replace(&mut told, true) {
            output::tell(recovery::WORDS);
        }
        let _ = sd_notify::notify(std::slice::from_ref(&extended));
    }
}
