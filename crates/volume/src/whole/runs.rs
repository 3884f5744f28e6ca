//! The runs of a server in which a volume's positions were reached: what says that a volume was set
//! back, as from a backup, also when it has as many updates again.
//! Holds: a run is written down before anything is said in it, and has another number than all others;
//! so nobody was told in a run of which there is no row of anything that there is, but for what was
//! there when it began.

use super::error::Result;
use super::record::{decode, encode};
use super::{VolumeId, Whole, keys, table};
use model::Seq;
use protocol::{Heard, RUNS_MAX, Run};
use store::{Read, Write};

/// The server was started, and stands where it stands. `drawn`: a number that no other run has. A run
/// in which nothing came to be goes.
pub fn begin_run(write: &mut dyn Write, volume: VolumeId, drawn: u64) -> Result<()> {
    let from = Whole::now(&*write, volume).position()?;
    Ok(write.put(table::RUNS, &keys::run(volume, from), &encode(&drawn))?)
}

/// The last runs, oldest first. One of which the row is damaged is passed over.
pub fn last_runs(read: &dyn Read, volume: VolumeId, runs_max: usize) -> Result<Vec<Run>> {
    let (from, mut until) = volume.range();
    let mut runs = Vec::new();
    while runs.len() < runs_max
        && let Some((key, value)) = read.last(table::RUNS, &from, &until)?
    {
        if let (Some(from), Ok(drawn)) = (keys::number_at_end(&key), drawn_in(&value)) {
            runs.push(Run { from: Seq(from), drawn });
        }
        until = key;
    }
    runs.reverse();
    Ok(runs)
}

/// Up to which position a client was told of what there is. Before the first run that is known, as
/// before any were written down, all is taken for the same, and so it is where a row is damaged.
pub fn in_common(read: &dyn Read, volume: VolumeId, heard: &Heard) -> Result<Seq> {
    let (first, end) = volume.range();
    for run in heard.runs.iter().rev().take(RUNS_MAX) {
        let key = keys::run(volume, run.from);
        let Some(value) = read.get(table::RUNS, &key)? else { continue };
        match drawn_in(&value) {
            Ok(drawn) if drawn == run.drawn => {
                let next = read.scan(table::RUNS, &[&key[..], &[0]].concat(), &end, 1)?;
                return Ok(upto(next.first(), heard.upto));
            }
            Ok(_) => {}
            Err(_) => return Ok(heard.upto),
        }
    }
    Ok(upto(read.scan(table::RUNS, &first, &end, 1)?.first(), heard.upto))
}

/// All that was told, and no more than was there when a run began.
fn upto(run: Option<&(Vec<u8>, Vec<u8>)>, told: Seq) -> Seq {
    let from = run.and_then(|(key, _)| keys::number_at_end(key));
    from.map_or(told, |from| told.min(Seq(from)))
}

fn drawn_in(value: &[u8]) -> Result<u64> {
    decode(|| "a run of the server".to_owned(), value)
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
        let all = [few, some, more, one, now];
        assert_eq!(all.map(|heard| server.in_common(&heard)), [3, 5, 5, 0, 100]);
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
        server.0.put(table::RUNS, &keys::run(VOLUME, Seq(50)), b"damaged").unwrap();
        assert_eq!(server.in_common(&server.tells(60, 32)), 50, "no more than is known");
        assert_eq!(server.in_common(&heard), 50);
        assert_eq!(server.runs(32), []);
    }
}
