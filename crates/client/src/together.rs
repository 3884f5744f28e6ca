//! Several small files with one answer: for who reads ahead, for what is pinned, and for what is
//! brought up to date.
//! Holds: what comes is checked as what somebody waits for is; nothing is taken in where somebody has
//! begun to write, or to fetch, himself.

use crate::ahead::{Bounds, Kept, joined};
use crate::asking::unexpected;
use crate::base::Source;
use crate::client::{Client, error_of};
use crate::fetch::Target;
use crate::presence::Presence;
use crate::room::Wanted;
use crate::types::Error;
use chunks::{unpack, unpack_after};
use model::{Contents, FileId, Kind, Node, Stamp};
use protocol::{
    Class, GATHERED_FILES_MAX, Gathered, PAYLOAD_BYTES_MAX, Portion, Range, Request, Response,
    Sought, Upstream, Wish,
};
use std::collections::VecDeque;
use store::Containers;

/// Answers that what was asked for together is spread over at most: each brings some.
const ANSWERS_MAX: usize = GATHERED_FILES_MAX;

/// A file that is asked for with others.
pub(crate) struct Asked<K> {
    pub file: FileId,
    /// The container that it goes to. One that is not open: that of the current version.
    pub generation: u32,
    pub version: Stamp,
    pub size: u64,
    pub source: Option<Source<K>>,
    /// Nobody has asked for it: it is the first to leave until somebody reads it.
    pub is_guess: bool,
}

/// A small file that is wanted with others, and into which container it goes.
#[derive(Clone, Debug)]
pub(crate) struct Small {
    pub file: FileId,
    pub generation: u32,
    pub node: Node,
}

/// Small files until there are enough of them for one answer.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    pub files: Vec<Small>,
    bytes: u64,
}

impl Gathering {
    pub fn has_room(&self, node: &Node, batch: u64) -> bool {
        let bytes = self.bytes.saturating_add(node.contents.size);
        self.files.is_empty() || (self.files.len() < GATHERED_FILES_MAX && bytes <= batch)
    }

    /// Gives those that are to be asked for before this one has room. `batch`: bytes of one answer.
    pub fn add(&mut self, small: Small, batch: u64) -> Option<Vec<Small>> {
        let full = !self.has_room(&small.node, batch);
        let before = full.then(|| std::mem::take(self).files);
        self.bytes += small.node.contents.size;
        self.files.push(small);
        before
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds::of(&self.inner.upstream.quality(), &self.inner.settings)
    }

    /// Whether a version is small enough to come with others, and nothing of it is here.
    pub(crate) fn is_small(&self, node: &Node, row: Option<&Presence>, bounds: &Bounds) -> bool {
        self.connection().gathers
            && node.kind == Kind::File
            && (1..=bounds.batch).contains(&node.contents.size)
            && row.is_none_or(|row| lacks_all(row, node))
    }

    /// Fetches small files together. Gives those that are all here.
    pub(crate) async fn bring_together(&self, files: Vec<Small>) -> Result<Vec<FileId>, Error> {
        let bytes = files.iter().map(|small| small.node.contents.size).sum();
        self.make_room_aside(Wanted::Room(bytes), None).await;
        if self.room_lacks(bytes)? > 0 {
            return Ok(Vec::new());
        }
        let mut asked = VecDeque::new();
        for Small { file, generation, node } in files {
            let (version, size) = (node.contents_stamp, node.contents.size);
            let source = self.source_for_fetch(file, version)?;
            asked.push_back(Asked { file, generation, version, size, source, is_guess: false });
        }
        let mut here = Vec::new();
        for _ in 0..ANSWERS_MAX {
            if asked.is_empty() || !self.may_keep_pins() {
                break;
            }
            let held = self.ahead().held.newest(&self.bounds());
            let asked_now = asked.make_contiguous();
            let gathered = self.ask_together(asked_now, &held).await?;
            let Some(mut chunks) = self.chunks_of(&gathered, &held)? else {
                // The other side has something else under these names: they are not named again.
                self.ahead().held.clear();
                continue;
            };
            let answered = gathered.portions.len();
            for portion in gathered.portions {
                let Some(one) = asked.pop_front() else { break };
                match self.take_portion(&one, portion, &mut chunks) {
                    Ok(true) => here.push(one.file),
                    Ok(false) => {}
                    Err(error) => tracing::debug!(%error, file = %one.file, "of no use"),
                }
            }
            if answered == 0 {
                break;
            }
        }
        Ok(here)
    }

    pub(crate) async fn ask_together(
        &self,
        asked: &[Asked<C::Container>],
        held: &[Kept],
    ) -> Result<Gathered, Error> {
        let files = asked.iter().map(|one| {
            let whole = Range { offset: 0, length: one.size };
            let base = one.source.as_ref().and_then(|source| source.base(one.size, whole));
            Wish { file: one.file, version: one.version, base, ranges: None }
        });
        let request = Request::Gather {
            files: files.collect(),
            bytes_max: PAYLOAD_BYTES_MAX as u64,
            sought: Sought::Contents,
            held: (!held.is_empty())
                .then(|| held.iter().map(|kept| (kept.file, kept.version)).collect()),
        };
        match self.ask(Class::Prefetch, request).await? {
            Response::Gathered(gathered) => Ok(gathered),
            other => Err(unexpected("gather", &other)),
        }
    }

    /// The chunks of all that came. None: the other side has something else under the names of what
    /// is here.
    pub(crate) fn chunks_of(
        &self,
        gathered: &Gathered,
        held: &[Kept],
    ) -> Result<Option<VecDeque<Vec<u8>>>, Error> {
        let chunks = match &gathered.sequel {
            None => unpack(&gathered.payload, PAYLOAD_BYTES_MAX).map(Some),
            Some(sequel) => {
                let (secret, _) = self.secret();
                unpack_after(&secret, sequel, &joined(held), PAYLOAD_BYTES_MAX)
            }
        };
        let chunks = chunks.map_err(|error| Error::Failed(error.to_string()))?;
        Ok(chunks.map(VecDeque::from))
    }

    /// Takes in what came of one file, from the chunks that are left. Says whether all of it is here.
    pub(crate) fn take_portion(
        &self,
        one: &Asked<C::Container>,
        portion: Portion,
        chunks: &mut VecDeque<Vec<u8>>,
    ) -> Result<bool, Error> {
        match portion {
            Portion::Plain { contents, chunks: count } => {
                let count = (count as usize).min(chunks.len());
                let bytes: Vec<u8> = chunks.drain(..count).flatten().collect();
                self.note_plain(one.file, one.version, false, bytes.len() as u64);
                self.take_one(one, contents, &bytes)
            }
            Portion::Delta { contents, delta } => {
                let undone = match &one.source {
                    Some(source) => self.undo_delta(source, &delta)?,
                    None => None,
                };
                match undone {
                    Some(chunks) => {
                        self.note_coded(one.file, one.version, false, &delta);
                        self.take_one(one, contents, &chunks.concat())
                    }
                    None => Ok(false),
                }
            }
            Portion::Recipe { .. } | Portion::Nothing => Ok(false),
        }
    }

    /// Takes in the contents of a file, unless somebody has it open by now who gets them himself.
    fn take_one(
        &self,
        asked: &Asked<C::Container>,
        contents: Contents,
        bytes: &[u8],
    ) -> Result<bool, Error> {
        if contents.size != asked.size || bytes.len() as u64 != asked.size {
            return Ok(false);
        }
        let held = self.hold(asked.file, asked.generation)?;
        let Some(generation) = held.generation() else { return Ok(false) };
        let secret = self.secret().0;
        let (target, fetching) = {
            let mut files = self.files();
            let Some(open) = files.get_mut(asked.file, generation) else { return Ok(false) };
            let here = &mut open.presence;
            let begun = here.dirty.is_some() || here.ground.is_some() || !here.ranges.is_empty();
            if here.version != asked.version || begun {
                return Ok(false);
            }
            if asked.is_guess && open.handles == 1 {
                here.used = 0;
            }
            let target = Target { class: Class::Prefetch, ..Target::of(asked.file, open, secret) };
            (target, open.fetching.clone())
        };
        let Ok(_alone) = fetching.try_write() else { return Ok(false) };
        self.take_whole(&target, contents, bytes)?;
        Ok(true)
    }

    pub(crate) fn row_of(&self, file: FileId) -> Result<Option<Presence>, Error> {
        let read = self.inner.tables.read().map_err(error_of)?;
        Presence::load(&*read, file).map_err(error_of)
    }
}

/// Nothing of the version is here, nor anything that was written.
pub(crate) fn lacks_all(row: &Presence, node: &Node) -> bool {
    let nothing = row.ranges.is_empty() && row.ground.is_none();
    row.dirty.is_none() && (row.version != node.contents_stamp || nothing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Time;

    fn small(file: u64, size: u64) -> Small {
        let mut node = Node::root_directory(0, 0, Time::default());
        node.contents.size = size;
        Small { file: FileId(file), generation: u32::MAX, node }
    }

    #[test]
    fn files_are_asked_for_together_as_far_as_one_answer_goes() {
        let mut gathering = Gathering::default();
        let mut asked = Vec::new();
        for (file, size) in [(1, 9_000), (2, 9_000), (3, 2_001), (4, 30_000), (5, 1)] {
            let before = gathering.add(small(file, size), 20_000).unwrap_or_default();
            asked.push(before.iter().map(|small| small.file.0).collect::<Vec<_>>());
        }
        assert_eq!(asked, [vec![], vec![], vec![1, 2], vec![3], vec![4]]);
        assert_eq!(gathering.files.len(), 1);
        for file in 6..6 + GATHERED_FILES_MAX as u64 {
            let before = gathering.add(small(file, 1), 20_000);
            assert!(before.is_none_or(|before| before.len() == GATHERED_FILES_MAX));
        }
    }
}
