//! What the user wants of the versions that are cached: to have what is current, or to go on with
//! what is here for a while, or until he asks for what is current.
//! Holds: a policy is for a file or for all below a directory, and the nearest one above a file
//! counts; it holds for what bears the name, and goes along when that is renamed; it is this
//! machine's alone. Of a file that is not current a whole version shows, its
//! attributes and its contents, and it is known here that there is a newer one.
//! From: partially connected operation, section 4 ("selective consistency").

mod ask;
mod hold;
mod named;
mod patience;
mod refresh;
mod report;

pub(crate) use hold::Said;
pub use report::{PolicyReport, PolicyShown, StaleShown};

use crate::client::Client;
use crate::following::Place;
use crate::ranks::{self, Rank, Ranked};
use minicbor::{Decode, Encode};
use model::{FileId, Name};
use named::Named;
use protocol::{Mode, Upstream};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use store::{Containers, Read, StoreError};
use tokio::sync::Notify;

/// What the user wants, by file.
const POLICIES: &str = "client-policies";
/// Files that are not current, and show all the same.
const STALE: &str = "client-stale";
const FORMAT: u8 = 1;
/// Policies of one mount. Each is kept in memory.
pub(crate) const POLICIES_MAX: usize = 1_000;
/// Files that are not current. Of more none goes on as it was.
const STALE_MAX: usize = 10_000;

/// Which version of a file is good enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Consistency {
    /// The current one, by callback.
    #[default]
    #[n(0)]
    Strict,
    /// Where the link is weak, one that was current so many seconds ago.
    #[n(1)]
    Bounded(#[n(0)] u32),
    /// The one that is here, until the user asks for the current one.
    #[n(2)]
    Manual,
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Consistency::Strict => f.write_str("strict"),
            Consistency::Bounded(secs) => write!(f, "bounded {secs}"),
            Consistency::Manual => f.write_str("manual"),
        }
    }
}

/// What the user wants of a file, or of all below a directory. None: as above.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub(crate) struct Policy {
    #[n(0)]
    pub consistency: Option<Consistency>,
    /// Contents that take more seconds to come are not fetched unasked. 0: they are.
    #[n(1)]
    pub ask_above: Option<u32>,
    /// Seconds since 1970.
    #[n(2)]
    pub since: i64,
    /// The name that it goes by. None: of the root, and of what has none that is known.
    #[n(3)]
    pub place: Option<Place>,
}

/// A file that shows as it was, though it is known to be otherwise by now.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(array)]
pub(crate) struct Stale {
    /// When it was last known to be current. Seconds since 1970. None: nobody knows.
    #[n(0)]
    pub current: Option<i64>,
    /// When a newer one was last told of.
    #[n(1)]
    pub told: i64,
    /// The name that another file has taken from it.
    #[n(2)]
    pub directory: Option<FileId>,
    #[n(3)]
    pub name: Option<Name>,
}

impl Stale {
    pub fn entry(&self) -> Option<(FileId, Name)> {
        self.directory.zip(self.name.clone())
    }

    /// Seconds since it was known to be current. None: nobody knows, or the clock was set back.
    fn age(&self, now: i64) -> Option<u64> {
        self.current.and_then(|current| u64::try_from(now.saturating_sub(current)).ok())
    }
}

/// What counts for one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub consistency: Consistency,
    pub ask_above: Option<u32>,
}

/// Whether a version that is not current is good enough. `age`: seconds since it was. `whole`: all
/// of it is here.
pub(crate) fn suffices(wanted: Consistency, mode: Mode, age: Option<u64>, whole: bool) -> bool {
    whole
        && match (wanted, mode) {
            (Consistency::Strict, _) => false,
            (Consistency::Manual, _) => true,
            // Who waits for others' verdicts need not do with less than what is current.
            (Consistency::Bounded(_), Mode::Connected) => false,
            // There is nothing else to be had.
            (Consistency::Bounded(_), Mode::Disconnected) => true,
            (Consistency::Bounded(secs), Mode::Partial | Mode::FetchOnly) => {
                age.is_some_and(|age| age < u64::from(secs))
            }
        }
}

/// The first that says something on the way up from a file counts.
pub(crate) fn nearest<'a>(upwards: impl IntoIterator<Item = &'a Policy>) -> Counts {
    let (mut consistency, mut ask_above) = (None, None);
    for policy in upwards {
        consistency = consistency.or(policy.consistency);
        ask_above = ask_above.or(policy.ask_above);
    }
    Counts {
        consistency: consistency.unwrap_or_default(),
        ask_above: ask_above.filter(|secs| *secs > 0),
    }
}

#[derive(Default)]
pub(crate) struct Policies {
    policies: BTreeMap<FileId, Policy>,
    stale: BTreeMap<FileId, Stale>,
    /// Of those, the ones that the user wants to be refreshed.
    wanted: BTreeSet<FileId>,
    /// Files that did not come with others, and are fetched by themselves.
    alone: BTreeSet<FileId>,
    /// Of what is not current, that for which the cache had no room when it was last fetched.
    cramped: BTreeSet<FileId>,
    /// A directory in which a file was found, and its name there.
    named: Named,
}

/// What there is of it while a client runs. Its lock is taken after the others, and let go before
/// another is taken.
#[derive(Default)]
pub(crate) struct Choosing {
    policies: Mutex<Policies>,
    /// Something is not current, and shows.
    is_stale: AtomicBool,
    /// There are policies.
    is_any: AtomicBool,
    /// What is not current has to be looked at.
    wanted: Notify,
}

impl Choosing {
    pub fn load(read: &dyn Read) -> Result<Choosing, StoreError> {
        let policies = Policies::load(read)?;
        let (is_stale, is_any) = (!policies.stale.is_empty(), !policies.policies.is_empty());
        Ok(Choosing {
            policies: Mutex::new(policies),
            is_stale: AtomicBool::new(is_stale),
            is_any: AtomicBool::new(is_any),
            wanted: Notify::new(),
        })
    }

    /// Whether something shows that is not current.
    pub fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Acquire)
    }

    /// Whether there are policies.
    pub fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    pub fn look(&self) {
        self.wanted.notify_one();
    }
}

impl Policies {
    fn load(read: &dyn Read) -> Result<Policies, StoreError> {
        let mut policies = Policies::default();
        let end = u64::MAX.to_be_bytes();
        for (key, value) in read.scan(POLICIES, &[], &end, POLICIES_MAX)? {
            policies.policies.insert(file_of(&key)?, decode(&value)?);
        }
        for (key, value) in read.scan(STALE, &[], &end, STALE_MAX)? {
            policies.stale.insert(file_of(&key)?, decode(&value)?);
        }
        Ok(policies)
    }

    pub fn rows(&self) -> impl Iterator<Item = (&FileId, &Policy)> {
        self.policies.iter()
    }

    /// What is not current may go on as it is, somewhere.
    fn may_hold(&self) -> bool {
        let weak = |policy: &Policy| policy.consistency.is_some_and(|it| it != Consistency::Strict);
        self.policies.values().any(weak)
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    pub(crate) fn policies(&self) -> Ranked<'_, Policies> {
        ranks::lock(Rank::Policies, &self.inner.keeping.choosing.policies)
    }
}

fn encode<T: Encode<()>>(row: &T) -> Vec<u8> {
    let mut bytes = vec![FORMAT];
    // A vector takes every byte.
    let _ = minicbor::encode(row, &mut bytes);
    bytes
}

fn decode<T: for<'a> Decode<'a, ()>>(bytes: &[u8]) -> Result<T, StoreError> {
    let Some((&FORMAT, rest)) = bytes.split_first() else {
        return Err(damaged("a row of a policy has an unknown format"));
    };
    minicbor::decode(rest).map_err(|error| damaged(&error.to_string()))
}

fn file_of(key: &[u8]) -> Result<FileId, StoreError> {
    let key = key.try_into().map_err(|_| damaged("a row of a policy has no file"))?;
    Ok(FileId(u64::from_be_bytes(key)))
}

fn damaged(what: &str) -> StoreError {
    StoreError::Damaged { place: POLICIES.into(), what: what.into() }
}

/// For a fuzzer: what is accepted of a row is read back as the same.
pub(crate) fn fuzz(bytes: &[u8]) {
    if let Ok(policy) = decode::<Policy>(bytes) {
        assert_eq!(decode::<Policy>(&encode(&policy)).expect("just encoded"), policy);
    }
    if let Ok(stale) = decode::<Stale>(bytes) {
        let _ = stale.age(0);
        assert_eq!(decode::<Stale>(&encode(&stale)).expect("just encoded"), stale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MODES: [Mode; 4] = [Mode::Connected, Mode::Partial, Mode::FetchOnly, Mode::Disconnected];

    #[test]
    fn what_is_good_enough_goes_by_the_policy_the_mode_and_the_time() {
        let good = |wanted| -> Vec<[bool; 3]> {
            let ages = [Some(9), Some(10), None];
            MODES.iter().map(|mode| ages.map(|age| suffices(wanted, *mode, age, true))).collect()
        };
        assert_eq!(good(Consistency::Strict), [[false; 3]; 4]);
        assert_eq!(good(Consistency::Manual), [[true; 3]; 4]);
        let within = [true, false, false];
        assert_eq!(good(Consistency::Bounded(10)), [[false; 3], within, within, [true; 3]]);
    }

    fn consistency() -> impl Strategy<Value = Consistency> {
        prop_oneof![
            Just(Consistency::Strict),
            Just(Consistency::Manual),
            (0..100_u32).prop_map(Consistency::Bounded)
        ]
    }

    proptest! {
        #[test]
        fn prop_what_is_not_all_here_is_never_good_enough(
            wanted in consistency(), mode in 0..4_usize, age in proptest::option::of(0..200_u64)
        ) {
            prop_assert!(!suffices(wanted, MODES[mode], age, false));
        }

        #[test]
        fn prop_what_is_good_enough_was_so_before(
            wanted in consistency(), mode in 0..4_usize, age in 1..200_u64
        ) {
            if suffices(wanted, MODES[mode], Some(age), true) {
                prop_assert!(suffices(wanted, MODES[mode], Some(age - 1), true));
            }
        }

        #[test]
        fn prop_the_nearest_that_says_something_counts(
            above in proptest::collection::vec(
                (proptest::option::of(consistency()), proptest::option::of(0..9_u32)), 0..6)
        ) {
            let policy = |&(consistency, ask_above)| Policy { consistency, ask_above, since: 0, place: None };
            let upwards: Vec<Policy> = above.iter().map(policy).collect();
            let counts = nearest(&upwards);
            let first = above.iter().find_map(|(consistency, _)| *consistency);
            prop_assert_eq!(counts.consistency, first.unwrap_or(Consistency::Strict));
            let first = above.iter().find_map(|(_, ask_above)| *ask_above);
            prop_assert_eq!(counts.ask_above, first.filter(|secs| *secs > 0));
        }
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        for consistency in [Consistency::Strict, Consistency::Bounded(300), Consistency::Manual] {
            let (consistency, ask_above) = (Some(consistency), Some(7));
            let place = Place { directory: FileId(3), name: Name::new("a").unwrap() };
            let since = 1_700_000_000;
            let policy = Policy { consistency, ask_above, since, place: Some(place) };
            assert_eq!(decode::<Policy>(&encode(&policy)).unwrap(), policy);
        }
        let name = Name::new("name").ok();
        let stale = Stale { current: None, told: 9, directory: Some(FileId(3)), name };
        assert_eq!(decode::<Stale>(&encode(&stale)).unwrap(), stale);
        assert!(decode::<Stale>(&[]).is_err() && file_of(&[1, 2]).is_err());
    }

    /// The bytes of a row never change their meaning.
    #[test]
    fn golden_rows_still_read() {
        let policy =
            |consistency, ask_above| Policy { consistency, ask_above, since: 7, place: None };
        let name = Name::new("a").unwrap();
        let place = Some(Place { directory: FileId(3), name });
        for (golden, row) in [
            (&[1, 0x83, 0x82, 0, 0x80, 0xf6, 7][..], policy(Some(Consistency::Strict), None)),
            (
                &[1, 0x83, 0x82, 1, 0x81, 0x19, 1, 0x2c, 0x18, 30, 7],
                policy(Some(Consistency::Bounded(300)), Some(30)),
            ),
            (&[1, 0x83, 0x82, 2, 0x80, 0xf6, 7], policy(Some(Consistency::Manual), None)),
            (&[1, 0x83, 0xf6, 0, 7], policy(None, Some(0))),
            (
                &[1, 0x84, 0xf6, 0, 7, 0x82, 3, 0x41, b'a'],
                Policy { place, ..policy(None, Some(0)) },
            ),
        ] {
            assert_eq!(encode(&row), golden);
            assert_eq!(decode::<Policy>(golden).unwrap(), row);
        }
        let (directory, name) = (Some(FileId(3)), Name::new("a").ok());
        let stale = Stale { current: Some(5), told: 9, directory, name };
        let golden = [1, 0x84, 5, 9, 3, 0x41, b'a'];
        assert_eq!(encode(&stale), golden);
        assert_eq!(decode::<Stale>(&golden).unwrap(), stale);
    }

    #[test]
    fn a_clock_that_was_set_back_tells_no_age() {
        let stale = Stale { current: Some(100), told: 100, directory: None, name: None };
        assert_eq!([stale.age(130), stale.age(99)], [Some(30), None]);
    }
}
