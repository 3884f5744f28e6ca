//! `farfs serve`.

use crate::data::{self, Data, First, LostKey, MAIN_VOLUME};
use crate::exit::{self, Exit, fail};
use crate::orders::{self, How, Order, Place};
use crate::owner::Owner;
use crate::trees::Trees;
use crate::{control, lock, logging, processes, threads};
use anyhow::Result;
use link::Listener;
use sd_notify::NotifyState;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use world::World;

/// How long tasks may take to end after the listener is closed.
const ENDING: Duration = Duration::from_secs(5);

/// Run a server
///
/// Makes what is missing in the data directory, with a volume `main` that belongs to the caller or
/// to --owner.
/// When it is ready it prints one line: `HOST:PORT key=FINGERPRINT`. It runs until it gets
/// SIGTERM or SIGINT.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs serve --data /srv/farfs
     farfs serve --data /srv/farfs --owner ann:ann
     farfs serve --data /srv/farfs --tree /home/shared
     farfs serve --data /srv/farfs --listen 0.0.0.0:7440 --advertise files.example.org:7440",
    &[Exit::Busy, Exit::Damaged],
))]
pub struct Serve {
    /// Where everything is kept
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Where to listen (UDP) [default: 0.0.0.0:7440]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// What invitations call this server [default: the address it listens on]
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<String>,
    /// Keep a volume in step with this directory, both ways: what programs of this machine change
    /// in it, clients see, and what clients change is there as ordinary files. It is remembered:
    /// later the flag is only needed when the directory has moved
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// The volume that is kept in step with --tree
    #[arg(long, value_name = "NAME", default_value = MAIN_VOLUME)]
    volume: String,
    /// Who owns the root directory of the volume `main` when it is made, by numbers or by names of
    /// this machine: with another owner than root, that user can write on the devices [default:
    /// the caller]
    #[arg(long, value_name = "UID:GID")]
    owner: Option<Owner>,
    /// Make another key in the place of one that is lost: each device must then be mounted once
    /// with the server's new URL and --accept-new-key
    #[arg(long)]
    new_key: bool,
    /// It always stays in the foreground
    #[arg(long, hide = true)]
    foreground: bool,
}

impl Serve {
    pub fn run(self) -> Result<()> {
        logging::to_stderr();
        processes::raise_file_size("a server")?;
        threads::are_there("a server")?;
        processes::raise_open_files();
        processes::tell_file_size();
        let settings = data::settings(&self.data)?;
        let listen = data::listen_address(self.listen.clone().or(settings.listen).as_deref())?;
        is_free(listen)?;
        let lost = if self.new_key { LostKey::Replaced } else { LostKey::Refused };
        let first = First::look(&self.data);
        let data =
            Data::open_with(&self.data, lost)?.ok_or_else(|| lock::in_use(&self.data, ""))?;
        let advertise = self.advertise.clone().or(settings.advertise);
        let served = self.serve(data, listen, advertise);
        if served.is_err() {
            first.undo(&self.data);
        }
        served
    }

    fn serve(&self, data: Data, listen: SocketAddr, advertise: Option<String>) -> Result<()> {
        first_volume(&data, self.owner)?;
        let trees = Trees::keep(&data, self.tree.as_deref(), &self.volume)?;
        let runtime = threads::runtime()?;
        let served = runtime.block_on(serve(data, listen, advertise));
        trees.stop();
        runtime.shutdown_timeout(ENDING);
        served
    }
}

/// Before anything is made: whoever is at the port may serve that very directory.
fn is_free(listen: SocketAddr) -> Result<()> {
    match std::net::UdpSocket::bind(listen) {
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Err(fail(
            Exit::Busy,
            format!(
                "the UDP port of {listen} is in use, perhaps by another farfs serve: end that, or \
                 choose another one with --listen ADDR:PORT (invitations name it then)"
            ),
        )),
        // Other troubles are told when it listens.
        _ => Ok(()),
    }
}

/// A server without a volume would be of no use.
fn first_volume(data: &Data, owner: Option<Owner>) -> Result<()> {
    if !data.origin.volumes()?.is_empty() {
        if owner.is_some() {
            tracing::warn!(
                "--owner is for a volume that is made, and there are volumes already: as root, \
                 chown the mount point of one to give it away"
            );
        }
        return Ok(());
    }
    let Owner { uid, gid } = owner.unwrap_or_else(Owner::caller);
    let order = Order::CreateVolume { name: MAIN_VOLUME.into(), uid, gid, cutter: How::Gear };
    let nowhere = Place::default();
    orders::carry_out(&data.origin, &nowhere, &order)?;
    Ok(())
}

async fn serve(data: Data, listen: SocketAddr, advertise: Option<String>) -> Result<()> {
    // Before anything is told to be ready: a signal from then on ends it cleanly.
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let key = data.identity.fingerprint().to_string();
    let service = Arc::new(data.origin.clone());
    let listener = Listener::bind(listen, &data.identity, service, World::real())?;
    let listening = listener.local_addr()?;
    let address = data::advertised(advertise, listening)?;
    data.remember_address(&address)?;
    let (origin, place) = (
        data.origin.clone(),
        Place { address: address.clone(), key: key.clone(), unwritable: None },
    );
    let reserve = data.reserve.clone();
    reserve.keep();
    data.origin.use_reserve(reserve.shared());
    let _control = control::serve(&data.directory, move |order: Order| {
        let (origin, place, reserve) = (origin.clone(), place.clone(), reserve.clone());
        async move {
            let work = move || {
                let work = || orders::carry_out(&origin, &place, &order);
                if order.frees() { reserve.free(work) } else { work() }
            };
            tokio::task::spawn_blocking(work).await?
        }
    })?;
    {
        let mut out = std::io::stdout();
        // Whoever started it may not listen; it serves all the same.
        let _ = writeln!(out, "{address} key={key}").and_then(|()| out.flush());
    }
    let tidying = data.origin.clone();
    let tidying = tokio::spawn(async move { tidying.keep_up().await });
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    tracing::info!(%address, %listening, "serving");
    let ended = tokio::select! {
        _ = term.recv() => true,
        _ = int.recv() => true,
        () = listener.serve() => false,
    };
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    tidying.abort();
    listener.close().await;
    tracing::info!("stopped serving");
    if ended { Ok(()) } else { Err(fail(Exit::Failure, "the network socket failed")) }
}
