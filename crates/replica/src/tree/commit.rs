//! Changes of a tree become updates of the volume, and what both sides then agree on is written
//! down with them.
//! Holds: what is agreed on is how the tree is, whatever became of the update; if the volume is
//! otherwise, the difference is the outlet's to carry out.

use super::intake::OF_MAKE;
use super::keeper::Keeper;
use super::rows::{self, Known};
use crate::callbacks::Place;
use crate::catalog::DeviceId;
use crate::error::Result;
use crate::take::{Batch, Submitter, take_alone};
use crate::upkeep::Promise;
use model::{Change, FileId, Kind, Name, ReplicaId, Seq, Stamp, Update, View};
use protocol::{Access, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use store::tree::Stat;
use tracing::{info, warn};
use volume::whole::{Committer, VolumeId};

/// Updates in one transaction.
const STEPS_MAX: usize = 500;

pub(super) type At = (FileId, Name);

#[derive(Clone, Debug)]
pub(super) struct Step {
    pub change: Option<Change>,
    /// Who owns what was changed.
    pub uid: u32,
    pub agree: Agree,
    /// The tree did not have what the volume has by now.
    pub unseen: bool,
    /// The chunks that it names stay until it is committed.
    pub _promise: Option<Promise>,
}

/// What is so in the tree.
#[derive(Clone, Debug)]
pub(super) enum Agree {
    Nothing,
    /// The file bears the name, and looks like this.
    Is {
        at: At,
        file: FileId,
        known: Box<Known>,
    },
    /// The file looks like this, under whatever names.
    Looks {
        file: FileId,
        known: Box<Known>,
    },
    /// And looks like this, if that tells of nothing but the move. `plain`: its extended
    /// attributes are those that are known.
    Moved {
        from: At,
        to: At,
        file: FileId,
        stat: Box<Stat>,
        plain: bool,
    },
    Exchanged {
        one: At,
        file: FileId,
        other: At,
        with: FileId,
    },
    Gone {
        at: At,
        file: FileId,
    },
}

impl Step {
    pub fn new(change: Change, uid: u32, agree: Agree) -> Step {
        Step { change: Some(change), uid, ..Step::agree(agree) }
    }

    /// Both sides are the same already.
    pub fn agree(agree: Agree) -> Step {
        Step { change: None, uid: 0, agree, unseen: false, _promise: None }
    }
}

impl Keeper {
    /// Commits steps in their order. `seen`: the position that they were made from.
    pub(super) fn commit(&mut self, steps: Vec<Step>, seen: Seq) -> Result<()> {
        let mut rest = steps.into_iter().peekable();
        while let Some(first) = rest.next() {
            let unseen = first.unseen;
            let mut piece = vec![first];
            // What makes a file and what fills it are not parted.
            let parted = |step: &Step| !matches!(&step.change, Some(Change::Store { expects, .. }) if *expects == OF_MAKE);
            while piece.len() < STEPS_MAX || rest.peek().is_some_and(|step| !parted(step)) {
                match rest.next_if(|step| step.unseen == unseen) {
                    Some(step) => piece.push(step),
                    None => break,
                }
            }
            self.commit_piece(&piece, if unseen { Seq::START } else { seen })?;
        }
        Ok(())
    }

    fn commit_piece(&mut self, steps: &[Step], seen: Seq) -> Result<()> {
        let at = self.inner.world.clock.time();
        let id = self.volume.id;
        // A commit that failed may be there all the same, and its stamps are used.
        let before = rows::tree(&*self.inner.tables.read()?, id)?;
        let before = before.unwrap_or_else(|| self.row.clone());
        let mut row = before.clone();
        let mut updates = Vec::new();
        for step in steps {
            let Some(mut change) = step.change.clone() else { continue };
            if let Change::Store { expects, .. } = &mut change
                && *expects == OF_MAKE
            {
                *expects = Stamp::new(row.replica, row.made);
            }
            row.made += 1;
            let stamp = Stamp::new(row.replica, row.made);
            updates.push(Update { stamp, uid: step.uid, at, change });
        }
        row.files = self.files_made;
        let by = Submitter {
            place: Place { replica: row.replica, session: 0 },
            device: device(&row.mark),
            device_name: self.name.clone(),
            access: Access::ReadWrite,
        };
        let settled = before.made;
        // The steps hold what counts.
        let promise = self.inner.upkeep.promises.current();
        let bad = BTreeSet::new();
        let batch = Batch {
            by,
            settled,
            strict: false,
            ahead: false,
            updates,
            bad,
            under: BTreeMap::new(),
            merges: BTreeMap::new(),
            _promise: promise,
        };
        let verdicts =
            take_alone(&self.inner, &self.volume, &batch, seen, |committer, verdicts| {
                let mut verdicts = verdicts.iter();
                for step in steps {
                    let verdict = step.change.as_ref().and_then(|_| verdicts.next());
                    agree_on(committer, id, (self.row.replica, settled), step, verdict)?;
                }
                rows::put_tree(committer.write(), id, &row)
            })?;
        self.row = row;
        self.note_outcome(steps, &verdicts)
    }

    /// What was not taken as it is in the tree is otherwise there from now on; what is in new
    /// directories is looked at.
    fn note_outcome(&mut self, steps: &[Step], verdicts: &[Verdict]) -> Result<()> {
        let mut verdicts = verdicts.iter();
        for step in steps {
            if let (Some(change), Some(verdict)) =
                (&step.change, step.change.as_ref().and_then(|_| verdicts.next()))
            {
                match verdict {
                    Verdict::Taken(_) => {}
                    Verdict::KeptAside { name, .. } => {
                        info!(volume = self.volume.name, %name, "a change in the tree met another");
                    }
                    Verdict::Refused(objection) => {
                        let what = self.told(change)?;
                        warn!(
                            volume = self.volume.name,
                            what,
                            why = %objection,
                            "a change of a program in the tree was not taken in; both sides are \
                             compared in a moment, and where they differ the volume's is put there \
                             and the other kept beside"
                        );
                    }
                }
                // What was taken is in the log, which is followed a piece at a time.
                if !matches!(verdict, Verdict::Taken(_)) {
                    self.behind.touch(change);
                }
                if matches!(verdict, Verdict::Refused(_)) {
                    self.doubts();
                }
            }
            if let Agree::Is { at, known, .. } = &step.agree
                && known.kind == Kind::Directory
            {
                let read = self.inner.tables.read()?;
                if let Some(file) = rows::named(&*read, self.volume.id, at.0, &at.1)? {
                    self.dirt.lists.insert(file);
                }
            }
        }
        Ok(())
    }
}

pub(super) fn device(mark: &[u8]) -> DeviceId {
    DeviceId::of(mark)
}

fn agree_on(
    committer: &mut Committer<'_>,
    volume: VolumeId,
    before: (ReplicaId, u64),
    step: &Step,
    verdict: Option<&Verdict>,
) -> Result<()> {
    let refused = matches!(verdict, Some(Verdict::Refused(_)));
    match &step.agree {
        Agree::Nothing => Ok(()),
        Agree::Is { at, file, known } => {
            if refused && !matches!(step.change, Some(Change::Link { .. })) {
                return Ok(());
            }
            let file = meant(committer, step.change.as_ref(), verdict, *file)?;
            let mut known = *known.clone();
            version_of(committer, before, step, file, &mut known)?;
            let row = rows::known(committer.read(), volume, file)?;
            known.names = row.map(|row| row.names).unwrap_or_default();
            if !known.names.contains(at) {
                known.names.push(at.clone());
            }
            // What bore the name in the tree bears it no more.
            let now = rows::named(committer.read(), volume, at.0, &at.1)?;
            if let Some(other) = now.filter(|other| *other != file) {
                rows::drop_name(committer.write(), volume, other, at)?;
            }
            rows::drop_staged(committer.write(), volume, known.ino)?;
            rows::put_known(committer.write(), volume, file, &known)
        }
        Agree::Looks { file, known } => {
            if refused {
                return Ok(());
            }
            let mut known = *known.clone();
            version_of(committer, before, step, *file, &mut known)?;
            let Some(before) = rows::known(committer.read(), volume, *file)? else {
                return Ok(());
            };
            known.names = before.names;
            rows::drop_staged(committer.write(), volume, known.ino)?;
            rows::put_known(committer.write(), volume, *file, &known)
        }
        Agree::Moved { from, to, file, stat, plain } => {
            rename_known(committer, volume, *file, from, to)?;
            match rows::known(committer.read(), volume, *file)? {
                Some(row) => {
                    rows::put_known(committer.write(), volume, *file, &row.moved(stat, *plain))
                }
                None => Ok(()),
            }
        }
        Agree::Exchanged { one, file, other, with } => {
            // Read first: a file that loses its only name is not known any more.
            let row = rows::known(committer.read(), volume, *with)?;
            rename_known(committer, volume, *file, one, other)?;
            let Some(mut row) = row else { return Ok(()) };
            row.names.retain(|name| name != other && name != one);
            row.names.push(one.clone());
            rows::put_known(committer.write(), volume, *with, &row)
        }
        Agree::Gone { at, file } => rows::drop_name(committer.write(), volume, *file, at),
    }
}

/// The file that has what was stored: kept aside, it is another one.
fn meant(
    committer: &Committer<'_>,
    change: Option<&Change>,
    verdict: Option<&Verdict>,
    file: FileId,
) -> Result<FileId> {
    let (Some(change), Some(Verdict::KeptAside { directory, name, .. })) = (change, verdict) else {
        return Ok(file);
    };
    let another =
        matches!(change, Change::Store { .. } | Change::Make { kind: Kind::Directory, .. });
    let there = committer.view().entry(*directory, name)?;
    Ok(there.filter(|_| another).unwrap_or(file))
}

/// The version that the tree has, as far as the step says it.
fn version_of(
    committer: &Committer<'_>,
    (replica, made_before): (ReplicaId, u64),
    step: &Step,
    file: FileId,
    known: &mut Known,
) -> Result<()> {
    let Some(change) = &step.change else { return Ok(()) };
    let Some(node) = committer.view().node(file)? else { return Ok(()) };
    if matches!(change, Change::Store { .. } | Change::Make { .. }) {
        known.contents_stamp = node.contents_stamp;
    }
    let made_here = |stamp: Stamp| stamp.replica == replica && stamp.number > made_before;
    if matches!(change, Change::Store { .. } | Change::Make { .. })
        && made_here(node.attributes_stamp)
    {
        known.attributes_stamp = node.attributes_stamp;
    }
    Ok(())
}

fn rename_known(
    committer: &mut Committer<'_>,
    volume: VolumeId,
    file: FileId,
    from: &At,
    to: &At,
) -> Result<()> {
    let Some(mut row) = rows::known(committer.read(), volume, file)? else { return Ok(()) };
    row.names.retain(|name| name != from && name != to);
    row.names.push(to.clone());
    rows::put_known(committer.write(), volume, file, &row)
}
