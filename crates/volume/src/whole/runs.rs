//! The runs of a server in which a volume's positions were reached: what says that a volume was set
//! back, as from a backup, also when it has as many updates again.
//! Holds: a run is written down before anything is said in it, and has another number than all others;
//! so nobody was told in a run of which there is no row of anything that there is, but for what was
//! there when it began. What cannot be read says nothing, and nobody is turned away by it.

use super::error::{Error, Result};
use super::record::{decode, encode};
use super::{VolumeId, Whole, keys, table};
use model::Seq;
use protocol::{Heard, RUNS_MAX, Run};
use store::{Read, Row, StoreError, Write};

/// In place of a number that was lost: any may have been drawn there.
pub(super) const LOST: u64 = 0;

/// The server was started, and stands where it stands. `drawn`: a number that no other run has. A run
/// in which nothing came to be goes.
pub fn begin_run(write: &mut dyn Write, volume: VolumeId, drawn: u64) -> Result<()> {
    let from = Whole::now(&*write, volume).position()?;
    Ok(write.put(table::RUNS, &keys::run(volume, from), &encode(&drawn.max(LOST + 1)))?)
}

/// The last runs that can be read, oldest first.
pub fn last_runs(read: &dyn Read, volume: VolumeId, runs_max: usize) -> Result<Vec<Run>> {
    let (from, mut until) = volume.range();
    let mut runs = Vec::new();
    while runs.len() < runs_max
        && let Some(row) = or_unknown(read.last(table::RUNS, &from, &until), None)?
    {
        match run_in(&row) {
            Some(run) if run.drawn != LOST => runs.push(run),
            _ => {}
        }
        until = row.0;
    }
    runs.reverse();
    Ok(runs)
}

/// Up to which position a client was told of what there is. Before the first run that is known, as
/// before any were written down, all is taken for the same.
pub fn in_common(read: &dyn Read, volume: VolumeId, heard: &Heard) -> Result<Seq> {
    let runs = &heard.runs[heard.runs.len().saturating_sub(RUNS_MAX)..];
    let found = || -> store::Result<Seq> {
        let (first, end) = volume.range();
        // What the client was told after a run it was told in the next, which is not one of this server's.
        let mut lost = None;
        for run in runs.iter().rev() {
            let key = keys::run(volume, run.from);
            let after = [&key[..], &[0]].concat();
            let there = read.last(table::RUNS, &first, &after)?;
            if there.is_some_and(|row| run_in(&row).is_none_or(|there| is_one(there, *run))) {
                let next = read.scan(table::RUNS, &after, &end, 1)?;
                return Ok(least(heard.upto, next.first(), lost));
            }
            lost = Some(run.from);
        }
        Ok(least(heard.upto, read.scan(table::RUNS, &first, &end, 1)?.first(), lost))
    };
    or_unknown(found(), heard.upto)
}

/// Whether the one that is there may be the one that was told of.
fn is_one(there: Run, told: Run) -> bool {
    there == told || there.drawn == LOST
}

/// All that was told, and no more than was there when the next runs of both began.
fn least(told: Seq, next: Option<&Row>, lost: Option<Seq>) -> Seq {
    let next = next.and_then(|(key, _)| keys::number_at_end(key)).map(Seq);
    [next, lost].into_iter().flatten().fold(told, Seq::min)
}

/// None: it is damaged.
fn run_in((key, value): &Row) -> Option<Run> {
    let drawn = decode(String::new, value).ok()?;
    Some(Run { from: Seq(keys::number_at_end(key)?), drawn })
}

/// What the store cannot read says nothing.
fn or_unknown<T>(outcome: store::Result<T>, unknown: T) -> Result<T> {
    match outcome {
        Err(StoreError::Damaged { .. }) => Ok(unknown),
        Err(error) if error.is_unreadable() => Ok(unknown),
        outcome => outcome.map_err(Error::from),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{create, record};
    use super::*;
    use model::{Node, Time};
    use store::Tables;
    use store::memory::MemoryTables;

    const VOLUME: VolumeId = VolumeId(3);

    /// A server, and a client that attaches when it says so.
    struct Server(Box<dyn Write>);

    impl Server {
        fn new() -> Server {
            // The rows are looked at within one transaction.
            let tables: &'static MemoryTables = Box::leak(Box::default());
            let mut write = tables.write().unwrap();
            create(&mut *write, VOLUME, Node::root_directory(0, 0, Time { secs: 1, nanos: 0 }))
                .unwrap();
            Server(write)
        }

        fn stands_at(&mut self, seq: u64) {
            let mut head = Whole::now(&*self.0, VOLUME).head().unwrap();
            head.position = Seq(seq);
            let row = record::encode(&head);
            self.0.put(table::HEAD, &keys::volume(VOLUME), &row).unwrap();
        }

        fn begins(&mut self, drawn: u64) {
            begin_run(&mut *self.0, VOLUME, drawn).unwrap();
        }

        /// As it was when the run `drawn` was the last, at this position.
        fn is_set_back(&mut self, seq: u64, drawn: u64) {
            let all = self.runs(usize::MAX);
            let of = all.iter().position(|run| run.drawn == drawn).unwrap();
            for run in &all[of + 1..] {
                self.0.delete(table::RUNS, &keys::run(VOLUME, run.from)).unwrap();
            }
            self.stands_at(seq);
        }

        fn runs(&self, runs_max: usize) -> Vec<Run> {
            last_runs(&*self.0, VOLUME, runs_max).unwrap()
        }

        fn tells(&self, upto: u64, runs_max: usize) -> Heard {
            Heard { upto: Seq(upto), runs: self.runs(runs_max) }
        }

        fn in_common(&self, heard: &Heard) -> u64 {
            in_common(&*self.0, VOLUME, heard).unwrap().0
        }
    }

    #[test]
    fn a_server_that_was_started_again_and_again_has_all_that_it_told() {
        let mut server = Server::new();
        let mut all = Vec::new();
        for (at, seq) in [(1, 0), (2, 0), (3, 4), (4, 4), (5, 9)] {
            server.stands_at(seq);
            server.begins(at);
            all.push(server.tells(seq, 32));
            all.push(server.tells(seq, 2));
        }
        server.stands_at(20);
        all.iter().for_each(|heard| assert_eq!(server.in_common(heard), heard.upto.0, "{heard:?}"));
        assert_eq!(server.runs(2).iter().map(|run| run.drawn).collect::<Vec<_>>(), [4, 5]);
    }

    #[test]
    fn what_was_lost_is_told_from_what_came_in_its_place() {
        let mut server = Server::new();
        server.begins(1);
        let (few, some) = (server.tells(3, 32), server.tells(7, 32));
        server.stands_at(7);
        server.begins(2);
        let (more, one) = (server.tells(12, 32), server.tells(12, 1));
        server.is_set_back(5, 1);
        assert_eq!(server.in_common(&some), 7, "it has not been started yet");
        server.begins(3);
        server.stands_at(100);
        let now = server.tells(100, 32);
        let all = [few, some, more.clone(), one, now];
        assert_eq!(all.map(|heard| server.in_common(&heard)), [3, 5, 5, 0, 100]);
        // And the other way round.
        let told_since = server.tells(8, 32);
        server.is_set_back(0, 1);
        for run in &more.runs[1..] {
            server.stands_at(run.from.0);
            server.begins(run.drawn);
        }
        server.stands_at(18);
        server.begins(4);
        assert_eq!([&told_since, &more].map(|heard| server.in_common(heard)), [5, 12]);
    }

    #[test]
    fn of_a_client_that_knows_none_of_the_runs_all_before_the_first_of_both_is_there() {
        let mut server = Server::new();
        server.stands_at(50);
        server.begins(1);
        let heard = |from, upto| {
            let runs = vec![Run { from: Seq(from), drawn: 99 }];
            Heard { upto: Seq(upto), runs }
        };
        let all = [heard(40, 45), heard(60, 70), heard(45, 45)];
        assert_eq!(all.map(|heard| server.in_common(&heard)), [40, 50, 45]);
    }

    #[test]
    fn what_was_told_before_runs_were_written_down_is_there() {
        let mut server = Server::new();
        server.stands_at(50);
        let old = server.tells(50, 32);
        assert_eq!(server.in_common(&old), 50, "nothing is known");
        server.begins(1);
        let heard = server.tells(50, 32);
        server.begins(2);
        server.stands_at(60);
        assert_eq!([&old, &heard].map(|heard| server.in_common(heard)), [50, 50]);
    }

    #[test]
    fn what_is_damaged_says_nothing() {
        let mut server = Server::new();
        for (seq, drawn) in [(0, 1), (10, 2), (20, 3)] {
            server.stands_at(seq);
            server.begins(drawn);
        }
        let all: Vec<Heard> = (0..30).map(|upto| server.tells(upto, 32)).collect();
        let old = Heard { upto: Seq(15), runs: server.runs(3)[..2].to_vec() };
        for value in [b"damaged".to_vec(), encode(&LOST)] {
            server.0.put(table::RUNS, &keys::run(VOLUME, Seq(10)), &value).unwrap();
            all.iter().chain([&old]).for_each(|heard| {
                assert_eq!(server.in_common(heard), heard.upto.0, "{heard:?}");
            });
            assert_eq!(server.runs(32).iter().map(|run| run.drawn).collect::<Vec<_>>(), [1, 3]);
        }
    }
}
