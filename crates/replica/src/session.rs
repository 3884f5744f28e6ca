//! One caller's session at an origin.

use crate::answer::{self, Asking, GatherWanted, Offered, ReadWanted, RecipeWanted, Sent, Wanted};
use crate::callbacks::{Coming, Company, Place, Teller, deliver};
use crate::catalog::{Admitted, DeviceId};
use crate::deltas::put_deltas;
use crate::error::Result;
use crate::examine::put_payload;
use crate::origin::Inner;
use crate::parts;
use crate::past;
use crate::take::{self, Submitter, await_grace, await_holders, submit};
use crate::tree::Ask;
use crate::upkeep::Counted;
use crate::volumes::{Volume, locked};
use crate::wanted::Round;
use chunks::Squeeze;
use model::{Allowance, FileId, ReplicaId, Seq};
use protocol::past::{Found, Past};
use protocol::{
    Access, Attach, Attached, Delta, Downstream, PATIENCE_FILES_MAX, Patience, Payload, Refusal,
    Request, Response, Session, Submit, TurnedAway,
};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::AbortHandle;
use tracing::info;

/// How long somebody who attaches waits for the changes of the one who had the volume for itself.
const NOTICE_COMPANY_WITHIN: Duration = Duration::from_secs(10);

/// A session. When it is dropped, what the client has cached stays under its lease.
pub struct OriginSession {
    inner: Arc<Inner>,
    volume: Arc<Volume>,
    caller: Admitted,
    teller: Arc<dyn Teller>,
    attached: Mutex<Option<Listening>>,
    /// How far this session has been asked for what is missing.
    round: Arc<Mutex<Round>>,
}

/// An attached session, and the task that delivers its notices.
struct Listening {
    place: Place,
    delivery: AbortHandle,
}

impl OriginSession {
    pub(crate) fn begin<D: Downstream>(
        inner: Arc<Inner>,
        volume: Arc<Volume>,
        caller: Admitted,
        downstream: D,
    ) -> Result<OriginSession, TurnedAway> {
        inner.sessions.fetch_add(1, Ordering::AcqRel);
        let teller = Arc::new(downstream);
        let (attached, round) = (Mutex::new(None), Arc::default());
        Ok(OriginSession { inner, volume, caller, teller, attached, round })
    }

    async fn submit(&self, updates: Submit) -> Result<Response, Refusal> {
        let place = self.place()?;
        if self.caller.access == Access::ReadOnly && !updates.updates.is_empty() {
            // Who could write before keeps what is pending, and may be let write again.
            return Err(Refusal::ReadOnly);
        }
        let by = Submitter {
            place,
            device: self.caller.device,
            device_name: self.caller.name.clone(),
            access: self.caller.access,
        };
        let _stirring = self.stir(&by.place).await;
        submit(&self.inner, &self.volume, by, updates).await.map(Response::Submitted)
    }

    /// The session's place among the holders of callbacks.
    fn place(&self) -> Result<Place, Refusal> {
        let attached = locked(&self.attached);
        let place = attached.as_ref().map(|listening| listening.place.clone());
        let place = place.ok_or(Refusal::NotAttached)?;
        // The same client may have another session by now.
        match self.volume.holders().at(&place) {
            Some(_) => Ok(place),
            None => Err(Refusal::NotAttached),
        }
    }

    async fn respond(&self, request: Request) -> Result<Response, Refusal> {
        if self.volume.is_removed() {
            return Err(Refusal::NoVolume);
        }
        if self.volume.has_turned_out(self.caller.device) {
            let what = "this device has been removed; ask for a new invitation";
            return Err(Refusal::Failed(what.into()));
        }
        match request {
            Request::Attach(attach) => self.attach(attach).await.map(Response::Attached),
            Request::Submit(updates) => self.submit(updates).await,
            Request::Put { payload, deltas } => {
                let place = self.place()?;
                if self.caller.access == Access::ReadOnly {
                    return self.give_back(payload, deltas).await;
                }
                self.put(place.replica, payload, deltas.unwrap_or_default()).await
            }
            Request::Leave => {
                let place = self.place()?;
                self.volume.holders().give_up(&place);
                let now = self.inner.world.clock.moment();
                answer::let_go_of_locks(&self.volume, place.replica, now);
                self.volume.look_for_one_alone(&self.inner.world.clock);
                self.run("let a client go", move |inner, volume| {
                    answer::leave(inner, volume, place.replica)?;
                    Ok(Ok(Response::Left))
                })
                .await
            }
            Request::Renew { seen } => {
                let place = self.place()?;
                // Also while its lease holds: it may end before it is renewed.
                let (coming, told) = Coming::begin(&self.volume, Some(place.replica));
                self.await_company(&told).await;
                let renewed = place.clone();
                let tail = self.run("renew a lease", move |inner, volume| {
                    answer::renew(inner, volume, &renewed, seen)
                });
                let tail = tail.await?;
                drop(coming);
                self.volume.look_for_one_alone(&self.inner.world.clock);
                let allowance = self.allowance(place.replica).await?;
                let (wanted, conflicts) = (self.asked().await, self.conflicts().await?);
                Ok(Response::Renewed { tail, wanted, allowance, conflicts })
            }
            Request::Past(past) => self.look_back(past).await.map(Response::Past),
            Request::Told => Ok(Response::Told(self.told().await?)),
            Request::Patience(patience) => self.heed(patience),
            request => self.show(self.place()?, request).await,
        }
    }

    /// Keeps chunks of something that is about to be stored.
    async fn put(
        &self,
        replica: ReplicaId,
        payload: Payload,
        deltas: Vec<Delta>,
    ) -> Result<Response, Refusal> {
        let put = move |inner: &Inner, volume: &Volume| {
            let who = (volume.id, replica);
            let promise = inner.upkeep.promises.sending(who, inner.world.clock.moment());
            let kept = put_payload(inner, volume, &promise, &payload).and_then(|known| {
                let useless = put_deltas(inner, volume, &promise, &deltas)?;
                let useless = (!useless.is_empty()).then_some(useless);
                let known = (known > 0).then_some(known);
                Ok(Response::Stored { useless, known })
            });
            if let Err(Refusal::NoSpace) = kept {
                inner.refused_for_room(who, None);
            }
            Ok(kept)
        };
        self.run("keep chunks", put).await
    }

    /// Waits until nobody goes by what was so before what is committed now.
    async fn told(&self) -> Result<Seq, Refusal> {
        let by = self.place()?.replica;
        let now = self.inner.world.clock.moment();
        let (waits, upto) = self.volume.holders().untold(by, now);
        await_holders(&self.inner, &self.volume, waits, upto).await;
        await_grace(&self.inner, &self.volume, by, upto).await;
        Ok(upto)
    }

    /// What is missing here, and what of it this client is asked for.
    async fn asked(&self) -> Option<protocol::Wanted> {
        if self.volume.wanted.len() == 0 {
            return None;
        }
        let round = self.round.clone();
        let asking = self.run("ask for what is missing", move |inner, volume| {
            Ok(Ok(inner.ask(volume, &mut locked(&round))?))
        });
        // It was logged, and the next renewal asks again.
        asking.await.unwrap_or(None)
    }

    /// What the volume may have, and has.
    async fn allowance(&self, replica: ReplicaId) -> Result<Option<Allowance>, Refusal> {
        let Some(quota) = self.volume.quota() else { return Ok(None) };
        let work = move |inner: &Inner, volume: &Volume| {
            Ok(Ok(Some(answer::allowance(inner, volume, quota, replica)?)))
        };
        self.run("look at the quota", work).await
    }

    /// How many conflicts are listed.
    async fn conflicts(&self) -> Result<Option<u64>, Refusal> {
        let work = |inner: &Inner, volume: &Volume| {
            Ok(Ok(Some(take::listed(&*inner.tables.read()?, volume.id)?)))
        };
        self.run("count the conflicts", work).await
    }

    /// A device that may only read changes nothing by a chunk that is missing: its name says what
    /// its bytes must be.
    async fn give_back(
        &self,
        payload: Payload,
        deltas: Option<Vec<Delta>>,
    ) -> Result<Response, Refusal> {
        if deltas.is_some() || self.volume.wanted.len() == 0 {
            return Err(Refusal::ReadOnly);
        }
        let put = move |inner: &Inner, volume: &Volume| Ok(inner.put_wanted(volume, &payload));
        self.run("keep chunks", put).await?;
        Ok(Response::Stored { useless: None, known: None })
    }

    /// Requests that only read.
    async fn show(&self, place: Place, request: Request) -> Result<Response, Refusal> {
        let _stirring = self.stir(&place).await;
        let clock = &self.inner.world.clock;
        if let Some(ask) = Ask::of(&request) {
            // What programs of the server have changed is taken in first.
            self.volume.door.look(ask, clock).await;
        }
        let squeeze = Squeeze::for_rate(self.teller.rate());
        let device = self.caller.device;
        self.run("answer a request", move |inner, volume| {
            answer_reading(inner, volume, (&place, device), (request, squeeze))
        })
        .await
    }

    /// What is asked of earlier states; others have heard of what was changed when it is answered.
    async fn look_back(&self, past: Past) -> Result<Found, Refusal> {
        let place = self.place()?;
        let by = place.replica;
        if self.caller.access == Access::ReadOnly && past::changes(&past) {
            return Err(Refusal::ReadOnly);
        }
        let _stirring = self.stir(&place).await;
        let device = Some(self.caller.name.clone());
        let (found, told) = past::answer(&self.inner, &self.volume, past, device).await?;
        if let Some((waits, upto)) = told {
            await_holders(&self.inner, &self.volume, waits, upto).await;
            await_grace(&self.inner, &self.volume, by, upto).await;
        }
        Ok(found)
    }

    /// Notes of what others need not wait until this client has been told.
    fn heed(&self, patience: Patience) -> Result<Response, Refusal> {
        let fits = |files: &[FileId]| files.len() <= PATIENCE_FILES_MAX;
        if !fits(&patience.below) || !fits(&patience.but) {
            return Err(Refusal::Malformed("more patience than there may be".into()));
        }
        let place = self.place()?;
        if let Some(holder) = self.volume.holders().at(&place) {
            holder.patience = patience;
        }
        Ok(Response::Heeded)
    }

    async fn attach(&self, attach: Attach) -> Result<Attached, Refusal> {
        let (coming, told) = Coming::begin(&self.volume, attach.replica);
        self.await_company(&told).await;
        let device = self.caller.device;
        let teller = self.teller.clone();
        let work = move |inner: &Inner, volume: &Volume| {
            let is_there = || teller.is_there();
            answer::attach(inner, volume, &Asking { device, attach: &attach, is_there: &is_there })
        };
        let attached = self.run("attach a client", work).await?;
        let place = attached.place;
        let to = (place.clone(), device);
        let task = deliver(self.volume.clone(), to, self.teller.clone());
        let listening =
            Listening { place: place.clone(), delivery: tokio::spawn(task).abort_handle() };
        if let Some(before) = locked(&self.attached).replace(listening) {
            before.delivery.abort();
            // Under another id than this one's it would be one that nobody ends.
            self.volume.holders().leave(&before.place);
        }
        drop(coming);
        self.volume.look_for_one_alone(&self.inner.world.clock);
        Ok(Attached {
            replica: place.replica,
            taken: attached.taken,
            secret: self.volume.key,
            cutter: self.volume.cutter,
            lease_secs: u32::try_from(self.inner.limits.lease.as_secs()).unwrap_or(u32::MAX),
            access: self.caller.access,
            tail: attached.tail,
            gathers: Some(true),
            wanted: self.asked().await,
            locks_lost: Some(attached.locks_lost),
            assembles: Some(true),
            looks_back: Some(true),
            takes_ahead: Some(true),
            ahead: (!attached.ahead.is_empty()).then_some(attached.ahead),
            takes_any_ahead: Some(true),
            tells: Some(true),
            heeds: Some(true),
            allowance: self.allowance(place.replica).await?,
            conflicts: self.conflicts().await?,
            runs: Some(attached.runs),
            in_common: attached.in_common,
        })
    }

    /// Somebody who has not used the volume for a while does: who had it for itself hears of it.
    async fn stir(&self, place: &Place) -> Option<Coming<'_>> {
        let now = self.inner.world.clock.moment();
        let (coming, told) = Coming::stirs(&self.volume, place.replica, now)?;
        self.await_company(&told).await;
        Some(coming)
    }

    /// Who had the volume for itself knows better, and what it did is here.
    async fn await_company(&self, told: &[Company]) {
        let noticed = async {
            for one in told {
                one.noticed().await;
            }
        };
        let clock = &self.inner.world.clock;
        if clock.within(NOTICE_COMPANY_WITHIN, noticed).await.is_none() {
            info!(volume = self.volume.name, "who was alone has not sent all of its changes yet");
            self.volume.holders().wait_no_more(told);
        }
    }

    /// Works on the stores where such work is done.
    async fn run<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Inner, &Volume) -> Result<Result<T, Refusal>> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (inner, volume) = (self.inner.clone(), self.volume.clone());
        let blocking = inner.limits.blocking;
        let work = move || {
            work(&inner, &volume).unwrap_or_else(|error| Err(inner.refuse(&error, &volume, doing)))
        };
        blocking.run(work).await?
    }
}

fn answer_reading(
    inner: &Inner,
    volume: &Volume,
    (place, device): (&Place, DeviceId),
    (request, squeeze): (Request, Squeeze),
) -> Result<Result<Response, Refusal>> {
    let done = match request {
        Request::List { directory, after, entries_max, deep, also } => {
            let entries_max = usize::try_from(entries_max).unwrap_or(usize::MAX);
            let also = also.unwrap_or_default();
            let wanted = Wanted { directory, after, entries_max, deep, also };
            let told = (&inner.damage, volume.name.as_str());
            answer::show(inner, volume, place, |view, at| answer::list((view, at), told, &wanted))?
                .map(Response::Listing)
        }
        Request::Inspect { nodes, entries } => answer::show(inner, volume, place, |view, at| {
            answer::inspect(view, at, &nodes, &entries)
        })?
        .map(Response::Inspected),
        Request::Recipe { file, version, range, eager_bytes, base } => {
            let wanted = RecipeWanted { file, version, range, eager_bytes, base, squeeze };
            answer::recipe(inner, volume, &wanted)?.map(Response::Recipe)
        }
        Request::Inside { file, version, stretch } => {
            parts::names_inside(inner, volume, (file, version), stretch)?
                .map(|names| Response::Inside(names.into()))
        }
        Request::Read { file, version, ranges, base, packed, inside } => {
            let offered = Offered { base, packed: packed.unwrap_or(false), inside };
            let wanted = ReadWanted { file, version, ranges, offered, squeeze };
            answer::read(inner, volume, &wanted)?.map(|sent| match sent {
                Sent::Plain(payload) => Response::Bytes(payload),
                Sent::Delta(delta) => Response::Delta(delta),
            })
        }
        Request::Gather { files, bytes_max, sought, held } => {
            let wanted =
                GatherWanted { files, bytes_max, sought, held: held.unwrap_or_default(), squeeze };
            answer::gather(inner, volume, &wanted)?.map(Response::Gathered)
        }
        Request::Find { names } => {
            parts::find(inner, volume, &names)?.map(|bits| Response::Found(bits.into()))
        }
        Request::Lock(asked) => {
            answer::lock(inner, volume, (place, device), &asked)?.map(Response::Locked)
        }
        Request::Measure => {
            inner.hears_of((volume.id, place.replica));
            Ok(Response::Measured(answer::measure(inner, volume)?))
        }
        Request::Attach(_)
        | Request::Renew { .. }
        | Request::Put { .. }
        | Request::Submit(_)
        | Request::Past(_)
        | Request::Told
        | Request::Patience(_)
        | Request::Leave => Err(Refusal::Malformed("a request that changes something".into())),
    };
    Ok(done)
}

impl Session for OriginSession {
    async fn answer(&self, request: Request) -> Response {
        let _busy = Counted::by(&self.inner.upkeep.busy);
        self.respond(request).await.unwrap_or_else(Response::Refused)
    }
}

impl Drop for OriginSession {
    fn drop(&mut self) {
        self.inner.sessions.fetch_sub(1, Ordering::AcqRel);
        if let Some(listening) = locked(&self.attached).take() {
            self.volume.holders().leave(&listening.place);
            listening.delivery.abort();
        }
    }
}
