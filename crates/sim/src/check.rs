//! What must hold, and how it is looked at.

use crate::machine::{ClientMachine, OriginMachine, Room};
use crate::operation::{Outcome, Path, Shown};
use crate::tree::{self, Tree};
use protocol::Caller;
use replica::Repair;
use std::collections::BTreeMap;
use std::time::Duration;

/// Simulated time in which any call must have an answer, whatever the network does.
pub const CALL_WITHIN: Duration = Duration::from_secs(300);
/// Simulated time in which everything must have come home once nothing is in the way.
const SETTLED_WITHIN: Duration = Duration::from_secs(900);
/// How often it is looked at whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Which file of the reference is which of the volume.
#[derive(Default)]
pub struct Pairs {
    there: BTreeMap<u64, u64>,
    here: BTreeMap<u64, u64>,
}

impl Pairs {
    /// A file is one and the same for as long as it lives.
    fn agree(&mut self, reference: u64, file: u64) -> bool {
        *self.there.entry(reference).or_insert(file) == file
            && *self.here.entry(file).or_insert(reference) == reference
    }

    fn agree_on(&mut self, reference: &Shown, found: &Shown) -> bool {
        let times = match (reference.mtime, found.mtime) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        let same = Shown { file: reference.file, mtime: reference.mtime, ..found.clone() };
        times && same == *reference && self.agree(reference.file, found.file)
    }

    /// Whether an operation gave what the reference gave.
    pub fn agree_on_outcome(&mut self, reference: &Outcome, found: &Outcome) -> bool {
        match (reference, found) {
            (Outcome::Shown(one), Outcome::Shown(other)) => self.agree_on(one, other),
            (Outcome::Names(ones), Outcome::Names(others)) => {
                ones.len() == others.len()
                    && ones.iter().zip(others).all(|((name, one), (other_name, other))| {
                        name == other_name && self.agree_on(one, other)
                    })
            }
            (Outcome::File(one), Outcome::File(other)) => self.agree(*one, *other),
            // The reference knows the first byte that is not zero; holes may end before it.
            (Outcome::Place(Some(first)), Outcome::Place(Some(place))) => place <= first,
            (Outcome::Place(None), Outcome::Place(_)) => true,
            (one, other) => one == other,
        }
    }
}

/// Waits until no client has anything pending; if `closed`, neither anything open that is written.
pub async fn settled(room: &Room, clients: &[ClientMachine], closed: bool) -> Result<(), String> {
    let start = room.clock.moment();
    loop {
        let pending: Vec<String> = clients
            .iter()
            .filter_map(|machine| {
                let pending = machine.client()?.status().pending;
                let idle = pending.updates == 0 && !(closed && pending.open_for_writing > 0);
                (!idle).then(|| format!("{}: {pending:?}", machine.name))
            })
            .collect();
        if pending.is_empty() {
            return Ok(());
        }
        if room.clock.moment().since(start) > SETTLED_WITHIN {
            return Err(format!("still pending after {SETTLED_WITHIN:?}: {}", pending.join("; ")));
        }
        room.clock.sleep(LOOK_EVERY).await;
    }
}

/// The origin's tree, read as by a device that has nothing cached.
pub async fn origin_tree(machine: &OriginMachine) -> Result<Tree, String> {
    let invitation = machine.invite()?;
    let origin = machine.origin().ok_or("the origin is down")?;
    let caller = Caller {
        device: format!("reader {invitation}").into_bytes(),
        name: "reader".into(),
        volume: crate::machine::VOLUME.into(),
        invitation: Some(invitation),
    };
    tree::of_origin(origin, caller).await
}

/// All clients show what the origin has. Gives the origin's tree.
pub async fn all_agree(
    room: &Room,
    origin: &OriginMachine,
    clients: &[ClientMachine],
) -> Result<Tree, String> {
    let truth = origin_tree(origin).await?;
    usage_adds_up(origin).await?;
    let top = Path(Vec::new());
    for machine in clients {
        let Some(client) = machine.client() else { continue };
        let walk = tree::of_client(client, &top);
        let found = room.clock.within(CALL_WITHIN, walk).await;
        let found = found.ok_or(format!("{} hangs when it is read", machine.name))?;
        let found = found.map_err(|fault| format!("{} cannot be read: {fault:?}", machine.name))?;
        same("the origin", &truth, &machine.name, &found)?;
    }
    Ok(truth)
}

/// What the origin says that files take is what its files take.
async fn usage_adds_up(machine: &OriginMachine) -> Result<(), String> {
    let origin = machine.origin().ok_or("the origin is down")?;
    let checked = origin.check(Repair::No).await.map_err(|error| error.to_string())?;
    let is_of_usage = |place: &str| place.starts_with("usage") || place.starts_with("head");
    let mut problems = checked.problems.into_iter().filter(|found| is_of_usage(&found.place));
    problems.next().map_or(Ok(()), |found| Err(format!("{}: {}", found.place, found.what)))
}

pub fn same(here: &str, one: &Tree, there: &str, other: &Tree) -> Result<(), String> {
    let differences = one.differences(here, other, there);
    if differences.is_empty() { Ok(()) } else { Err(differences.join("\n")) }
}

/// Nothing broke that no call told of.
pub fn nothing_broke(room: &Room, clients: &[ClientMachine]) -> Result<(), String> {
    if let Some(fault) = room.network.faults().into_iter().next() {
        return Err(fault);
    }
    match clients.iter().find(|machine| machine.has_stopped_by_itself()) {
        Some(machine) => Err(format!("what drives {} has ended by itself", machine.name)),
        None => Ok(()),
    }
}
