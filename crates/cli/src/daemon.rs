//! One mount at work: wires the link into a client and the client into the kernel, and answers
//! through the control socket, until it is unmounted.
//! Holds: nothing is mounted before it can be used; whatever ends it, what is pending is on the
//! disk.

use crate::exit::{Exit, OrExit, fail};
use crate::plan::Plan;
use crate::processes;
use crate::questions::{Question, Reply};
use crate::recovery::Telling;
use crate::state::{Known, State};
use crate::uplink::Uplink;
use crate::{control, driver, exit, guard, keeping, last_words, show};
use crate::{metrics, mounts, owner, past, places, private, state, stores, threads};
use anyhow::{Context, Result};
use client::{Client, Headway, Settings, Stop};
use link::{Identity, RemoteConfig};
use model::FileId;
use mount::{MountOptions, Mounted};
use not_ready::{Server, Why};
use protocol::past::Found;
use protocol::{Class, Request, Status, Unreachable, Upstream};
use sd_notify::NotifyState;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::container::DirectoryContainers;
use tokio::signal::unix::{SignalKind, signal};
use world::World;

mod not_ready;

type Volume = Client<Uplink, DirectoryContainers>;

/// How long to go on sending when the volume is unmounted by others than `farfs umount`.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long tasks may take to end after that.
const ENDING: Duration = Duration::from_secs(5);
/// The least time for a mount to come up: so long it takes to settle that there is no link.
pub const SETTLING: Duration = Duration::from_secs(8);
/// How often `farfs explain` fetches what it lacks before it gives up.
const TRIES_MAX: usize = 8;
/// What the parts of a running mount share.
#[derive(Clone)]
struct Shared {
    volume: Volume,
    uplink: Uplink,
    patience: Arc<Mutex<Duration>>,
    /// It was mounted so.
    read_only: bool,
}

impl Shared {
    fn status(&self) -> Status {
        let mut status = self.volume.status();
        status.read_only |= self.read_only;
        let regulation = self.uplink.regulation();
        status.link.limit_up = regulation.up;
        status.link.limit_down = regulation.down;
        status.link.tickets = Some(regulation.tickets.to_string());
        if !status.link.connected {
            status.link.trouble = status.link.trouble.or_else(|| self.uplink.trouble());
        }
        status
    }
}

/// Mounts, calls `ready` when it can be used, with what is damaged of it all the same, and returns when it is unmounted. `log` is told the
/// state directory once it is this mount's own; `goes_on` is called again and again, from a thread of its own, as
/// long as what a kill has left is looked through.
pub fn run(
    plan: &Plan,
    log: impl FnOnce(&Path) -> Result<()>,
    goes_on: impl FnMut() + Send + 'static,
    ready: impl FnOnce(Vec<String>) -> Result<()>,
) -> Result<()> {
    processes::raise_file_size("a mount")?;
    threads::are_there("a mount")?;
    let is_made = !plan.state.exists();
    let state = State::open(&plan.state)?;
    // Who had it until now may have made what is in it, and have something pending.
    let is_new = state::is_new(&plan.state);
    log(&state.directory)?;
    private::look(&state.directory, &state.tables());
    let known = state.recognise(plan.known.clone(), plan.consent)?;
    state.device_key_is_there(false, plan.consent)?;
    processes::raise_open_files();
    processes::tell_file_size();
    let runtime = threads::runtime()?;
    let mut invitation = Invitation::Unused;
    let outcome = runtime.block_on(mounted(plan, &state, known, &mut invitation, (goes_on, ready)));
    runtime.shutdown_timeout(ENDING);
    if outcome.is_err() && is_new && invitation == Invitation::Unused {
        state::undo(state, is_made);
    }
    outcome
}

/// What has become of the invitation by which a device is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Invitation {
    Unused,
    /// It is good for this device alone from now on, or may be.
    Used,
}

impl Invitation {
    /// A server is shown no invitation before it has proved its key, and so was heard of.
    fn of(status: &Status, ended: &Result<()>) -> Invitation {
        let refused = |error: &anyhow::Error| exit::code(error) == Exit::TurnedAway;
        let refused = ended.as_ref().is_err_and(refused);
        let heard = status.wire_bytes_received > 0;
        match status.replica.is_none() && (refused || !heard) {
            true => Invitation::Unused,
            false => Invitation::Used,
        }
    }
}

async fn mounted(
    plan: &Plan,
    state: &State,
    known: Known,
    invitation: &mut Invitation,
    (goes_on, ready): (impl FnMut() + Send + 'static, impl FnOnce(Vec<String>) -> Result<()>),
) -> Result<()> {
    let signals = Signals::new()?;
    if known.unattached {
        has_address(&known).await?;
    }
    let headway = Headway::default();
    let shared = {
        let _telling = Telling::of(headway.clone(), goes_on);
        open(plan, state, &known, headway)?
    };
    let mut driver = tokio::spawn({
        let volume = shared.volume.clone();
        async move { volume.run().await }
    });
    let served = tokio::select! {
        served = serve(plan, state, known, &shared, signals, ready) => served,
        broken = driver::broken_down(&mut driver) => Err(broken),
    };
    let patience = match served {
        Ok(()) => *shared.patience.lock().unwrap_or_else(PoisonError::into_inner),
        Err(_) => Duration::ZERO,
    };
    *invitation = Invitation::of(&shared.volume.status(), &served);
    let pending = shared.volume.shut_down(patience).await;
    driver.abort();
    shared.uplink.close();
    tracing::info!(pending, "unmounted");
    served
}

/// A first mount of a server whose name leads nowhere needs no patience: most often it is misspelt.
async fn has_address(known: &Known) -> Result<()> {
    let link::Address { host, port, .. } = known.url.parse()?;
    let found = tokio::net::lookup_host((host.as_str(), port));
    match tokio::time::timeout(SETTLING, found).await {
        Ok(Err(error)) => Err(fail(
            Exit::Unreachable,
            format!("cannot mount {}: the name {host} leads to no address: {error}", known.url),
        )),
        _ => Ok(()),
    }
}

/// Everything below the kernel. Touches no network yet but to connect in the background.
fn open(plan: &Plan, state: &State, known: &Known, headway: Headway) -> Result<Shared> {
    let world = World::real();
    let had_key = state.device_key().exists();
    let identity = Identity::load_or_create(&state.device_key())
        .map_err(|error| state.device_key_is_unusable(error))?;
    let damage = state::unusable(&state.directory.display().to_string());
    last_words::begin_with(damage.clone());
    let explained = |error: anyhow::Error| match exit::code(&error) {
        Exit::Damaged => error.context(damage),
        _ => error.context(format!("cannot use {}", state.directory.display())),
    };
    let mut address: link::Address = known.url.parse()?;
    address.invitation.clone_from(&known.invitation);
    let server = format!("{}:{}", address.host, address.port);
    let regulation = plan.limits.upon(link::Regulation::default());
    let config = RemoteConfig::new(address, identity, device_name(), world.clone());
    let config = RemoteConfig { regulation, welcomed: !known.unattached, ..config };
    let uplink = Uplink::connect(config)?;
    let settings = Settings {
        whole_bytes_max: None,
        early_bytes_min: None,
        mode: plan.mode.wanted(),
        durability: plan.durability.wanted(),
        cache_bytes_max: plan.cache_bytes_max,
        pending_near_max: client::PENDING_NEAR_MAX,
        plan_chunks_max: client::PLAN_CHUNKS_MAX,
        again_bytes_min: client::AGAIN_BYTES_MIN,
        accepts_set_back: plan.consent.accept_set_back,
        replay_delay: plan.limits.replay_delay.and_then(|stay| stay.0),
        passes_from: (!plan.in_order).then_some(client::PASSES_FROM),
        budget: plan.limits.budget.and_then(|most| most.0),
        answer_within: plan.answer_within,
        on_behalf_of: Some(owner::who_asks()),
        volume: known.volume.clone(),
        server,
        mountpoint: plan.mountpoint.clone(),
        state_directory: state.directory.clone(),
        headway,
    };
    let volume = stores::open(state, known, |stores| {
        Ok(Client::open(stores, uplink.clone(), world.clone(), settings.clone())?)
    });
    let volume = volume.map_err(explained)?;
    let attached = volume.status().replica.is_some();
    if attached && !had_key && !plan.consent.new_device_key {
        std::fs::remove_file(state.device_key()).context("cannot take a new key back")?;
        state.device_key_is_there(attached, plan.consent)?;
    }
    state.bind(known, attached, plan.consent)?;
    let patience = Arc::new(Mutex::new(PATIENCE));
    Ok(Shared { volume, uplink, patience, read_only: plan.read_only })
}

/// What the server calls this device in lists: the machine's name.
fn device_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

async fn serve(
    plan: &Plan,
    state: &State,
    known: Known,
    shared: &Shared,
    mut signals: Signals,
    ready: impl FnOnce(Vec<String>) -> Result<()>,
) -> Result<()> {
    let came = tokio::select! {
        came = shared.volume.ready(plan.answer_within.max(SETTLING)) => match came {
            Ok(()) => Ok(()),
            Err(error) => Err(not_ready(shared, &known, &error).await),
        },
        () = signals.end() => Err(fail(Exit::Failure, "stopped before it was mounted")),
    };
    let status = shared.status();
    let attached = status.replica.is_some();
    // A first mount that came too late has been let in all the same.
    if came.is_ok() || (known.unattached && attached) {
        // An invitation whose answer was lost is good for this device again; a key that has just
        // been replaced may need it when there is a link.
        let invitation = known.invitation.clone().filter(|_| !attached || plan.consent.any());
        let unattached = known.unattached && !attached;
        state.remember(&Known { invitation, unattached, ..known.clone() })?;
    }
    came?;
    let options = MountOptions {
        allow_other: plan.allow_other,
        read_only: status.read_only,
        kernel_flags: plan.flags.iter().map(|flag| flag.wanted()).collect(),
        passthrough: plan.passthrough.wanted(),
        fs_name: format!("{}@{}", status.volume, status.server),
        threads: None,
    };
    let runtime = tokio::runtime::Handle::current();
    let mounted = mount::mount(shared.volume.clone(), &plan.mountpoint, options, runtime)?;
    guard::start(&plan.mountpoint, mounted.device());
    let _control = control::serve(&state.directory, {
        let shared = shared.clone();
        move |question| answer(shared.clone(), question)
    })?;
    if let Some(address) = plan.metrics {
        let shared = shared.clone();
        metrics::serve(address, move || shared.status()).await?;
    }
    let _registered = mounts::register(&plan.mountpoint, &state.directory, mounted.device())?;
    if let Err(error) = places::note(&state.directory) {
        let error = exit::words(&error);
        tracing::warn!(error, "the next mount needs its URL or --state again");
    }
    ready(show::state_damage(&shared.status()))?;
    tracing::info!(mountpoint = %plan.mountpoint.display(), volume = known.volume, "mounted");
    until_unmounted(mounted, shared, &mut signals).await
}

/// Why the volume cannot be shown, with the exit code that says it.
async fn not_ready(shared: &Shared, known: &Known, error: &client::Error) -> anyhow::Error {
    // It answers at once: the session is gone, or there never was one.
    let asked = shared.uplink.ask(Class::Interactive, Request::Measure);
    let server = match tokio::time::timeout(Duration::from_secs(1), asked).await {
        Ok(Err(Unreachable::TurnedAway(_))) => Server::TurnsAway,
        Ok(Ok(_)) => Server::Answers,
        _ => Server::Silent,
    };
    let link = shared.uplink.trouble().unwrap_or_else(|| error.to_string());
    let status = shared.status();
    let damage = not_ready::damage(&status.state_damage);
    let damage = damage.map(|what| format!("{}: {what}", state::unusable(&status.state_directory)));
    not_ready::error(server, Why { link, session: status.link.trouble, damage }, known)
}

async fn until_unmounted(mounted: Mounted, shared: &Shared, signals: &mut Signals) -> Result<()> {
    loop {
        tokio::select! {
            ended = mounted.wait() => {
                ended?;
                break;
            }
            told = signals.next() => match told {
                Told::HurryUp => shared.uplink.nudge(),
                Told::End => {
                    match mounted.unmount() {
                        // The last requests are answered.
                        Ok(()) => drop(tokio::time::timeout(ENDING, mounted.wait()).await),
                        // Dropped, the mount is taken from under whoever uses it.
                        Err(error) => tracing::warn!(%error, "ended all the same"),
                    }
                    break;
                }
            },
        }
    }
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    Ok(())
}

async fn answer(shared: Shared, question: Question) -> Result<Reply> {
    match question {
        Question::Status => Ok(Reply::Status(Box::new(shared.status()))),
        Question::Explain { file, path } => explain(&shared.volume, FileId(file), &path).await,
        Question::Mode(mode) => {
            shared.volume.set_mode(mode.wanted());
            shared.uplink.nudge();
            Ok(Reply::Done)
        }
        Question::Log { file, files_max } => {
            let volume = shared.volume.clone();
            let look = move || volume.pending_log(file.map(FileId), files_max);
            let log = tokio::task::spawn_blocking(look).await??;
            Ok(Reply::Log(Box::new(log)))
        }
        Question::Limit(limits) => {
            shared.uplink.regulate(limits);
            if let Some(budget) = limits.budget {
                shared.volume.set_budget(budget.0);
            }
            if let Some(stay) = limits.replay_delay {
                shared.volume.set_replay_delay(stay.0);
            }
            Ok(Reply::Done)
        }
        Question::Pause(paused) => {
            shared.volume.pause(paused)?;
            Ok(Reply::Done)
        }
        Question::Keep(wish) => keeping::answer(&shared.volume, wish).await,
        Question::Logged => {
            shared.volume.logged().await?;
            Ok(Reply::Done)
        }
        Question::Visible => {
            shared.volume.visible().await.map_err(looked_back)?;
            Ok(Reply::Done)
        }
        Question::Told { file } => {
            shared.volume.damage_told(file.map(FileId))?;
            Ok(Reply::Done)
        }
        Question::Hurry => {
            shared.volume.hurry();
            shared.uplink.nudge();
            Ok(Reply::Done)
        }
        Question::ReadThrough { file, offset } => {
            let done = shared.volume.read_through((file, offset)).await?;
            Ok(Reply::ReadThrough(Box::new(done)))
        }
        Question::ConflictsTold => {
            let told = shared.volume.conflicts_told()?;
            let written = |(ago, told)| (ago, past::Written::of(&Found::Conflicts(told)));
            Ok(Reply::Told(told.map(written)))
        }
        Question::LookBack { asks } => {
            let found = shared.volume.look_back(asks.read()?).await.map_err(looked_back)?;
            Ok(past::reply(&found))
        }
        Question::Leave { patience } => {
            *shared.patience.lock().unwrap_or_else(PoisonError::into_inner) = patience;
            Ok(Reply::Done)
        }
    }
}

/// Why the server was not asked, or did not answer.
fn looked_back(error: client::Error) -> anyhow::Error {
    let exit = match &error {
        client::Error::Unreachable(_) | client::Error::TimedOut(_) | client::Error::Retry => {
            Exit::Unreachable
        }
        _ => Exit::Failure,
    };
    let words = match &error {
        client::Error::Unreachable(why) => format!("it takes a link to the server: {why}"),
        client::Error::Objection(protocol::Objection::ReadOnly) => {
            "this device may only read the volume".to_owned()
        }
        error => error.to_string(),
    };
    fail(exit, words)
}

/// Fetches what it lacks, a bounded number of times.
async fn explain(volume: &Volume, file: FileId, path: &str) -> Result<Reply> {
    for _ in 0..TRIES_MAX {
        match volume.explain(file, path) {
            Ok(explanation) => return Ok(Reply::Explanation(Box::new(explanation))),
            Err(Stop::Need(need)) => {
                volume.satisfy(need).await.or_exit(Exit::Unreachable, path)?;
            }
            Err(Stop::Error(error)) => return Err(error).or_exit(Exit::Failure, path),
        }
    }
    Err(fail(Exit::Failure, format!("{path} changes faster than it can be looked at")))
}

/// Caught from the first moment, so that none ends the process half-way.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::End,
            _ = self.interrupt.recv() => Told::End,
            _ = self.hang_up.recv() => Told::HurryUp,
        }
    }

    async fn end(&mut self) {
        while self.next().await != Told::End {}
    }
}

/// What a signal asks for.
#[derive(PartialEq, Eq)]
enum Told {
    End,
    /// Connect now.
    HurryUp,
}
