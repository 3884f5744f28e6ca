//! Whether the cache still holds of the server's versions what the server has: a disk can lose bits
//! and say nothing. All of the cache is read through in passes, slowly, or at once when somebody asks.
//! Holds: bytes are compared with names for which the version's root vouches; what differs leaves the
//! cache and is fetched anew, with the link there is, and people are told.
//! Never: lets go of what is pending, written to, or lent to the kernel, or of anything while there
//! is no link.
//! From: beyond the papers, whose caches trust their disks (LBFS, "Implementation").

mod pass;

pub(crate) use pass::Pass;

use crate::client::{Client, error_of};
use crate::failures::of_chunks;
use crate::fetch::{Target, bad};
use crate::plan::describe_container;
use crate::presence::Presence;
use crate::recipes;
use crate::room::Stretches;
use crate::types::Error;
use chunks::{Growing, Placed, Secret, cover};
use model::{FileId, Piece, View};
use pass::{At, BETWEEN, BYTES_AT_ONCE, FILES_AT_ONCE, LOOK_EVERY, WINDOW_BYTES};
use protocol::{Class, MendedStatus, Range, Upstream};
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, PoisonError};
use store::container::Key;
use store::{Container, Containers, StoreError};
use volume::partial::Tree;

/// Pieces of one window: chunks of 2 KiB at the least.
const PIECES_MAX: usize = 1 << 16;
/// Zeros are looked at so many at once.
const ZEROS_AT_ONCE: u64 = 1 << 20;

/// What one turn has looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadThrough {
    pub files: u64,
    pub bytes: u64,
    /// Files of which something is here, and not known what it should be.
    pub unknown: u64,
    pub wrong: Vec<Wrong>,
    /// Where to go on: file and offset. None: all has been looked at.
    pub next: Option<(u64, u64)>,
}

/// A file of which something was not as the server has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wrong {
    pub path: String,
    pub bytes: u64,
    /// Why that is so still. None: it was fetched anew.
    pub left: Option<String>,
}

/// What was found to be wrong since the mount.
#[derive(Default)]
pub(crate) struct Mended(Mutex<MendedStatus>);

impl Mended {
    pub fn status(&self) -> MendedStatus {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, path: &str, bytes: u64) {
        let mut mended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        mended.times += 1;
        mended.bytes += bytes;
        mended.last = Some(path.into());
    }
}

/// A version that is here, as far as it is, and that nobody changes.
struct Copy<K> {
    file: FileId,
    presence: Presence,
    container: K,
}

/// What a look at a window has found.
enum Found {
    /// Nothing is here that could be looked at.
    Nothing,
    /// It is as it should be, up to where it says.
    Sound {
        until: u64,
    },
    /// It is not known here what it should be, but it is not as it would be cut.
    Doubtful,
    Unknown,
    Wrong(Stretches),
}

struct Look<K> {
    copy: Option<Copy<K>>,
    found: Found,
    bytes: u64,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Reads through the cache when that is due, with time between for the others.
    pub(crate) async fn run_passes(&self) {
        while !self.is_stopping() {
            let wait = match self.next_of_pass() {
                Some(at) if self.may_mend() => match self.read_through(at).await {
                    Ok(looked) => {
                        self.pass_went_on(looked.next);
                        BETWEEN
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the cache could not be read through");
                        LOOK_EVERY
                    }
                },
                Some(_) | None => LOOK_EVERY,
            };
            tokio::select! {
                biased;
                () = self.until_stopping() => {}
                () = self.inner.world.clock.sleep(wait) => {}
            }
        }
    }

    fn next_of_pass(&self) -> Option<At> {
        let now = self.inner.world.clock.time().secs;
        let mut core = self.core();
        let pass = Pass::next(core.meta.pass, now);
        core.unsaved |= core.meta.pass != Some(pass);
        core.meta.pass = Some(pass);
        pass.at
    }

    fn pass_went_on(&self, next: Option<At>) {
        let mut core = self.core();
        if let Some(pass) = &mut core.meta.pass {
            pass.at = next;
        }
        // Before that, whatever else is saved brings it along: at worst something is read twice.
        core.unsaved |= next.is_none();
    }

    /// What is wrong could be fetched.
    fn may_mend(&self) -> bool {
        let connection = self.connection();
        connection.attached && connection.fetches_ahead()
    }

    /// Looks at some of the cache, from a place on, and mends what is wrong.
    pub async fn read_through(&self, from: (u64, u64)) -> Result<ReadThrough, Error> {
        let mut looked = ReadThrough { next: Some(from), ..ReadThrough::default() };
        for _ in 0..FILES_AT_ONCE {
            let Some((file, offset)) = looked.next.filter(|_| looked.bytes < BYTES_AT_ONCE) else {
                break;
            };
            let after = file.checked_sub(1).map(FileId);
            let client = self.clone();
            let page = move || Presence::page(&*client.inner.tables.read()?, after, 1);
            let page = self.off_the_runtime(page).await.map_err(error_of)?;
            let Some((found, _)) = page.into_iter().next() else {
                looked.next = None;
                break;
            };
            let offset = if found.0 == file { offset } else { 0 };
            let until = self.read_window(found, offset, &mut looked).await?;
            looked.next = match until {
                Some(until) => Some((found.0, until)),
                None => found.0.checked_add(1).map(|next| (next, 0)),
            };
        }
        Ok(looked)
    }

    /// Looks at a window of a file, and mends what is wrong in it. Says where to go on in the file.
    async fn read_window(
        &self,
        file: FileId,
        offset: u64,
        looked: &mut ReadThrough,
    ) -> Result<Option<u64>, Error> {
        let client = self.clone();
        let look = self.off_the_runtime(move || Ok(client.compare(file, offset))).await;
        let look = look.map_err(error_of)??;
        looked.bytes += look.bytes;
        let Some(copy) = look.copy else { return Ok(None) };
        let size = copy.presence.contents.size;
        let window = window(offset, size);
        let end = window.offset + window.length;
        let (until, wrong) = match look.found {
            Found::Nothing => (size, Stretches::new()),
            Found::Sound { until } => (until, Stretches::new()),
            Found::Unknown => {
                looked.unknown += 1;
                (size, Stretches::new())
            }
            Found::Wrong(wrong) => (end, wrong),
            Found::Doubtful => {
                if !self.connection().attached {
                    looked.unknown += 1;
                    looked.files += 1;
                    return Ok(None);
                }
                (end, self.compare_with_asked(&copy, window).await?)
            }
        };
        if !wrong.is_empty() {
            let bytes = wrong.iter().map(|(from, to)| to - from).sum();
            let path = self.name_for_people(file);
            let left = self.mend(&copy, wrong).await;
            match &left {
                None => {
                    tracing::warn!(path, bytes, "the cache had something else than the server");
                    self.inner.mended.note(&path, bytes);
                }
                Some(left) => {
                    tracing::warn!(
                        path,
                        bytes,
                        left,
                        "the cache has something else than the server"
                    );
                }
            }
            looked.wrong.push(Wrong { path, bytes, left });
        }
        let goes_on = (until < size).then_some(until);
        looked.files += u64::from(goes_on.is_none());
        Ok(goes_on)
    }

    /// What is here of a file's version that the server has, if nobody is changing it.
    fn copy_of(&self, file: FileId) -> Result<Option<Copy<C::Container>>, StoreError> {
        let core = self.core();
        let files = self.files();
        let read = self.inner.tables.read()?;
        let open = files.newest_generation(file).and_then(|newest| files.get(file, newest));
        let presence = match open {
            Some(open) if open.is_clean() => Some(open.presence.clone()),
            Some(_) => None,
            None => Presence::load(&*read, file)?,
        };
        let Some(presence) = presence else { return Ok(None) };
        let is_server_s = presence.dirty.is_none()
            && presence.ground.is_none()
            && presence.contents.root.is_some()
            && core.log.pending_store(file).is_none();
        // What is not current goes by itself.
        let is_current = matches!(
            Tree::new(&*read, 0).node(file),
            Ok(Some(node)) if node.contents_stamp == presence.version
        );
        if !is_server_s || !is_current || presence.ranges.is_empty() {
            return Ok(None);
        }
        let key = Key { file: file.0, generation: presence.generation };
        let container = self.inner.containers.open(key, false)?;
        Ok(container.map(|container| Copy { file, presence, container }))
    }

    /// Compares a window of what is here with what is known here of the version.
    fn compare(&self, file: FileId, offset: u64) -> Result<Look<C::Container>, Error> {
        let none = Look { copy: None, found: Found::Nothing, bytes: 0 };
        let Some(copy) = self.copy_of(file).map_err(error_of)? else { return Ok(none) };
        let (secret, cutter) = self.secret();
        let contents = copy.presence.contents;
        let window = window(offset, contents.size);
        let (found, bytes) = match self.known_pieces(&copy, &secret, window)? {
            Some(pieces) => {
                let (wrong, bytes) = compare(&copy, &secret, &pieces).map_err(error_of)?;
                let until = window.offset + window.length;
                let sound = Found::Sound { until };
                (if wrong.is_empty() { sound } else { Found::Wrong(wrong) }, bytes)
            }
            None if !copy.presence.is_whole() => (Found::Unknown, 0),
            None if offset > 0 => (Found::Doubtful, 0),
            None => {
                let growing = Growing::new(&secret, cutter);
                let size = copy.container.length().map_err(error_of)?.min(contents.size);
                let described = describe_container(&copy.container, growing, size, 0, |_| Ok(()));
                let described = described.map_err(of_chunks)?.tree.contents;
                let sound = Found::Sound { until: contents.size };
                let is_sound = described == contents;
                (if is_sound { sound } else { Found::Doubtful }, contents.data().max(1))
            }
        };
        Ok(Look { copy: Some(copy), found, bytes })
    }

    /// The pieces of a window, if all of the recipe that they take is here.
    fn known_pieces(
        &self,
        copy: &Copy<C::Container>,
        secret: &Secret,
        window: Range,
    ) -> Result<Option<Vec<Placed>>, Error> {
        if !recipes::is_kept(&copy.presence.contents) {
            return Ok(None);
        }
        let read = self.inner.tables.read().map_err(error_of)?;
        let found = cover(secret, &copy.presence.contents, window, PIECES_MAX, |name| {
            let bytes = recipes::find(&*read, copy.file, name)?;
            Ok(bytes.filter(|bytes| secret.check(name, bytes).is_ok()))
        })
        .map_err(bad)?;
        Ok((found.missing.is_empty() && found.next.is_none()).then_some(found.pieces))
    }

    /// The same with what the server says of the version.
    async fn compare_with_asked(
        &self,
        copy: &Copy<C::Container>,
        window: Range,
    ) -> Result<Stretches, Error> {
        let generation = copy.presence.generation;
        let _held = self.hold(copy.file, generation)?;
        let secret = self.secret().0;
        let target = {
            let files = self.files();
            let open = files.get(copy.file, generation);
            match open.filter(|open| open.presence.version == copy.presence.version) {
                Some(open) => Target::of(copy.file, open, secret),
                // Another version is current by now.
                None => return Ok(Stretches::new()),
            }
        };
        let target = Target { class: Class::Prefetch, ..target };
        let size = copy.presence.contents.size;
        let (_, pieces) = self.pieces_of_version(&target, size, window).await?;
        let copy = Copy {
            file: copy.file,
            presence: copy.presence.clone(),
            container: copy.container.clone(),
        };
        let compared = move || compare(&copy, &target.secret, &pieces);
        let (wrong, _) = self.off_the_runtime(compared).await.map_err(error_of)?;
        Ok(wrong)
    }

    /// Has stretches leave the cache, and fetches them anew. Gives why not.
    async fn mend(&self, copy: &Copy<C::Container>, wrong: Stretches) -> Option<String> {
        if !self.connection().attached {
            return Some("there is no link; it is fetched when it is looked at again".into());
        }
        let (file, generation) = (copy.file, copy.presence.generation);
        let held = match self.hold(file, generation) {
            Ok(held) => held,
            Err(error) => return Some(error.to_string()),
        };
        let is_it = held.generation() == Some(generation);
        let (client, version, leave) = (self.clone(), copy.presence.version, wrong.clone());
        let left = move || Ok(client.leave_now((file, generation), version, leave));
        match self.off_the_runtime(left).await.map_err(error_of).flatten() {
            Ok(true) if is_it => {}
            Ok(_) => return Some("it is in use; close it and check again".into()),
            Err(error) => return Some(error.to_string()),
        }
        self.forget_what_is_cached(file, true);
        for (from, to) in wrong {
            if let Err(error) = self.fetch(file, generation, from, to - from).await {
                // Whoever reads it fetches it.
                tracing::debug!(%error, %file, "what was wrong could not be fetched yet");
            }
        }
        None
    }
}

fn window(offset: u64, size: u64) -> Range {
    Range { offset, length: WINDOW_BYTES.min(size.saturating_sub(offset)) }
}

/// The pieces that are here and are not what they should be, and how many bytes were read.
fn compare<K: Container>(
    copy: &Copy<K>,
    secret: &Secret,
    pieces: &[Placed],
) -> Result<(Stretches, u64), StoreError> {
    let (mut wrong, mut read) = (Stretches::new(), 0);
    for placed in pieces {
        let length = placed.piece.length();
        if !copy.presence.has(placed.offset, length) {
            continue;
        }
        let is_right = match &placed.piece {
            Piece::Chunk { name, length } => {
                read += length;
                let length = usize::try_from(*length).unwrap_or(usize::MAX);
                let bytes = copy.container.read(placed.offset, length)?;
                bytes.len() == length && secret.check(name, &bytes).is_ok()
            }
            Piece::Zeros { length } => are_zeros(&copy.container, placed.offset, *length)?,
        };
        if !is_right {
            wrong.push((placed.offset, placed.end()));
        }
    }
    Ok((wrong, read))
}

fn are_zeros<K: Container>(container: &K, offset: u64, length: u64) -> Result<bool, StoreError> {
    for (from, length) in container.data(offset, length)? {
        let mut at = from;
        while at < from + length {
            let step = ZEROS_AT_ONCE.min(from + length - at);
            let bytes = container.read(at, usize::try_from(step).unwrap_or(usize::MAX))?;
            if bytes.is_empty() || bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += bytes.len() as u64;
        }
    }
    Ok(true)
}
