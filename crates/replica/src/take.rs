//! Takes updates: exactly once, in the order of their stamps, in transactions that concurrent
//! submits share.
//! Holds: all of a batch is in one transaction, durable before it is answered; chunks are safe
//! from a power cut before an update that names them is; whoever has to be told is noted before
//! anybody is answered.
//! From: DESIGN, "Updates"; LBFS, CONDWRITE.

mod again;
mod alone;
mod aside;
mod batch;
mod conflict;
mod decide;
mod group;
mod missed;
mod quota;
mod records;
mod redirect;
mod revive;
mod settings;
mod unseen;
mod vet;

pub(crate) use alone::take_alone;
pub(crate) use aside::kept_name;
pub(crate) use batch::Batch;
pub(crate) use conflict::{CONFLICTS, LISTED, SETTLED, conflicts, contents_of_conflicts};
pub use conflict::{Claimed, Clash, Conflict};
pub(crate) use conflict::{
    Settled, conflict_of, conflicts_after, listed, put, reopen, settle, settled_after, settled_of,
};
pub(crate) use group::Queue;
pub(crate) use missed::{Unsettled, ended, look_again, settle as settle_missed, tell_missed};
pub(crate) use quota::exceeds;
pub(crate) use redirect::{
    CONTENTS as ASIDE_CONTENTS, MERGED, NAMES as ASIDE_NAMES, purge_redirects,
};

use crate::callbacks::{Place, Wait};
use crate::catalog::DeviceId;
use crate::deltas::put_deltas;
use crate::examine::{examine, put_payload};
use crate::origin::Inner;
use crate::upkeep::Promise;
use crate::volumes::Volume;
use crate::within::take_from_within;
use model::{Allowance, Change, ChunkName, FileId, ReplicaId, Seq, Stamp, Update, birth_of};
use protocol::{Access, Refusal, States, Submit, Submitted, Verdict};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Updates in one submit.
const UPDATES_MAX: usize = 10_000;
/// Missing chunks are looked for inside containers so often for one submit.
const SEEK_ROUNDS: usize = 4;

/// Who submits.
#[derive(Clone, Debug)]
pub(crate) struct Submitter {
    pub place: Place,
    pub device: DeviceId,
    pub device_name: String,
    pub access: Access,
}

/// What became of a batch that was committed.
#[derive(Debug)]
pub(crate) struct Done {
    pub verdicts: Vec<Verdict>,
    pub states: States,
    pub upto: Seq,
    /// Whom a strict writer waits for.
    pub waits: Vec<Wait>,
    pub allowance: Option<Allowance>,
}

/// What a batch was found to need.
struct Lacks {
    missing: Vec<ChunkName>,
    useless: Vec<(FileId, Stamp)>,
}

impl Lacks {
    fn with(self, verdicts: Vec<Verdict>, states: States) -> Submitted {
        let useless = (!self.useless.is_empty()).then_some(self.useless);
        let allowance = None;
        Submitted { verdicts, missing: self.missing, states, useless, allowance }
    }
}

/// Answers a submit: stores what came along, takes what can be taken, and waits for those who
/// must know of it first.
pub(crate) async fn submit(
    inner: &Arc<Inner>,
    volume: &Arc<Volume>,
    by: Submitter,
    submit: Submit,
) -> Result<Submitted, Refusal> {
    let (who, waited_for) = ((volume.id, by.place.replica), submit.strict);
    // What goes ahead says nothing of what waits its turn.
    let sends_next = brings_contents(&submit) && submit.ahead != Some(true);
    let answer = answer(inner, volume, by, submit).await;
    if sends_next {
        inner.note_answer(who, waited_for, &answer);
    }
    answer
}

async fn answer(
    inner: &Arc<Inner>,
    volume: &Arc<Volume>,
    by: Submitter,
    submit: Submit,
) -> Result<Submitted, Refusal> {
    check_order(by.place.replica, &submit.updates)?;
    let (strict, writer) = (submit.strict, by.place.replica);
    let (batch, lacks) = if brings_contents(&submit) {
        let (inner, volume) = (inner.clone(), volume.clone());
        let blocking = inner.limits.blocking;
        blocking.run(move || prepare(&inner, &volume, by, submit)).await??
    } else {
        // Nothing of it touches a disk, and another thread would take longer than that.
        prepare(inner, volume, by, submit)?
    };
    if batch.updates.is_empty() {
        return Ok(lacks.with(Vec::new(), States::default()));
    }
    let answer = enqueue(inner, volume, batch)?;
    let gone = || Refusal::Failed("the server is going down".into());
    let done = answer.await.map_err(|_| gone())??;
    let changed = done.verdicts.iter().any(|verdict| !matches!(verdict, Verdict::Refused(_)));
    if strict && changed {
        await_holders(inner, volume, done.waits, done.upto).await;
        await_grace(inner, volume, writer, done.upto).await;
    }
    let submitted = lacks.with(done.verdicts, done.states);
    Ok(Submitted { allowance: done.allowance, ..submitted })
}

/// Updates are the writer's own, and their numbers grow: what was taken back leaves a gap.
fn check_order(replica: ReplicaId, updates: &[Update]) -> Result<(), Refusal> {
    let malformed = |what: String| Err(Refusal::Malformed(what));
    if updates.len() > UPDATES_MAX {
        return malformed(format!("{} updates at once, of {UPDATES_MAX}", updates.len()));
    }
    let mut last = 0;
    for update in updates {
        let stamp = update.stamp;
        if stamp.replica != replica {
            return malformed(format!("update {stamp} from {replica}"));
        }
        if stamp.number <= last {
            return malformed(format!("update {stamp} after number {last}"));
        }
        last = stamp.number;
    }
    Ok(())
}

fn brings_contents(submit: &Submit) -> bool {
    let is_store = |update: &Update| matches!(update.change, Change::Store { .. });
    submit.payload.is_some() || submit.deltas.is_some() || submit.updates.iter().any(is_store)
}

/// Takes in what came along. Gives the deltas that nothing came of.
fn put_contents(
    inner: &Inner,
    volume: &Volume,
    promise: &Promise,
    submit: &Submit,
) -> Result<Vec<(FileId, Stamp)>, Refusal> {
    if let Some(payload) = &submit.payload {
        put_payload(inner, volume, promise, payload)?;
    }
    let deltas = submit.deltas.as_deref().unwrap_or_default();
    put_deltas(inner, volume, promise, deltas)
}

/// Takes in the chunks that came along, and cuts the batch off before the first update whose
/// contents are not all here.
fn prepare(
    inner: &Inner,
    volume: &Volume,
    by: Submitter,
    mut submit: Submit,
) -> Result<(Batch, Lacks), Refusal> {
    let writes = by.access == Access::ReadWrite;
    let ahead = submit.ahead == Some(true);
    let promise = inner.upkeep.promises.submitting();
    let put = if writes { put_contents(inner, volume, &promise, &submit) } else { Ok(Vec::new()) };
    let useless = match put {
        Err(Refusal::NoSpace) => {
            let judged = again::judged(inner, volume, &by, (ahead, &submit.updates))
                .map_err(|error| inner.refuse(&error, volume, "look for verdicts"))?;
            if judged == 0 {
                return Err(Refusal::NoSpace);
            }
            // Of these, what came along is not needed.
            submit.updates.truncate(judged);
            Vec::new()
        }
        put => put?,
    };
    let stores = brings_contents(&submit);
    let mut missing = Vec::new();
    let mut bad = std::collections::BTreeSet::new();
    if writes && stores {
        let look = || {
            examine(inner, volume, &promise, by.place.replica, &submit.updates)
                .map_err(|error| inner.refuse(&error, volume, "look for the contents of updates"))
        };
        let mut examined = look()?;
        if let Some(for_each) = submit.seek {
            for _ in 0..SEEK_ROUNDS {
                if !take_from_within(inner, volume, &examined.missing, for_each)? {
                    break;
                }
                examined = look()?;
            }
        }
        // A file that is made and stored in one go is taken with its contents.
        let whole = birth_of(&submit.updates, examined.whole);
        submit.updates.truncate(whole);
        (missing, bad) = (examined.missing, examined.bad);
    }
    if stores || !(ahead || submit.strict) {
        // What does not wait goes in order: what was sent before it is stored, or will not be.
        inner.sends_now((volume.id, by.place.replica), &promise, (submit.strict, ahead));
    }
    let Submit { settled, strict, updates, under, .. } = submit;
    let under = records::held_alone(inner, volume, &by.place, under.unwrap_or_default());
    let merges = records::merges(inner, volume, (&updates, &under));
    let batch =
        Batch { by, settled, strict, ahead, updates, bad, under, merges, _promise: promise };
    Ok((batch, Lacks { missing, useless }))
}

type Answer = oneshot::Receiver<Result<Done, Refusal>>;

/// Puts the batch into the queue and sees to it that somebody works on it.
fn enqueue(inner: &Arc<Inner>, volume: &Arc<Volume>, batch: Batch) -> Result<Answer, Refusal> {
    let (sender, answer) = oneshot::channel();
    let start = volume.queue().push(batch, sender)?;
    if start {
        // A task of its own: it must go on if the one who asked is gone.
        tokio::spawn(group::work(inner.clone(), volume.clone()));
    }
    Ok(answer)
}

/// Nobody goes by a lease of an earlier life of this origin any more: each is over, or its client has
/// attached since and taken in what it had missed.
pub(crate) async fn await_grace(inner: &Inner, volume: &Volume, by: ReplicaId, upto: Seq) {
    let clock = &inner.world.clock;
    if volume.grace.is_past(clock.moment()) {
        return;
    }
    volume.grace.over(clock).await;
    let waits = volume.holders().latecomers(by, upto, clock.moment());
    await_holders(inner, volume, waits, upto).await;
}

/// Every other holder has taken in the notice, or believes nothing any more.
pub(crate) async fn await_holders(inner: &Inner, volume: &Volume, waits: Vec<Wait>, upto: Seq) {
    let clock = &inner.world.clock;
    for wait in waits {
        let left = wait.until.since(clock.moment());
        let acknowledged = wait.acknowledged.until(|seen| *seen >= upto);
        if clock.within(left, acknowledged).await.is_none() {
            volume.holders().mark_late(&wait, clock.moment());
        }
    }
}
