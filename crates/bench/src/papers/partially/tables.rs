//! The paper's tables, with today's values beside its own; and what is aimed at, with what was got.

use super::{
    CONNECTED_FAST, CONNECTED_SLOW, Condition, EXT4, PARTIAL_FAST, PARTIAL_SLOW, SSHFS_FAST,
    SSHFS_SLOW,
};
use super::{Part, Report, aims, andrew, calls, live, log, middle};
use crate::table::{Table, bytes};

const BESIDE: &[Condition] =
    &[CONNECTED_FAST, CONNECTED_SLOW, PARTIAL_SLOW, PARTIAL_FAST, EXT4, SSHFS_FAST, SSHFS_SLOW];
const PAPER_LINKS: &[&str] = &["paper: Ethernet", "paper: C-SLIP", "paper: P-SLIP"];

fn heads<'a>(first: &'a str, paper: &[&'a str], conditions: &[Condition]) -> Vec<&'a str> {
    let ours = conditions.iter().map(|condition| condition.name);
    std::iter::once(first).chain(paper.iter().copied()).chain(ours).collect()
}

/// `85 µs`, `12 ms`, `3.2 s`
pub fn time(secs: f64) -> String {
    match secs {
        0.0..0.001 => format!("{:.0} µs", secs * 1e6),
        0.001..1.0 => format!("{:.1} ms", secs * 1e3),
        1.0..100.0 => format!("{secs:.2} s"),
        _ => format!("{secs:.0} s"),
    }
}

impl Report {
    fn cell(&self, part: Part, what: &str, on: &Condition) -> String {
        let more = if self.is_more(part, what, on.name) { "> " } else { "" };
        self.median(part, what, on.name)
            .map(|secs| format!("{more}{}", time(secs)))
            .unwrap_or_default()
    }

    /// Table 1.
    pub fn calls(&self) -> Table {
        let mut table = Table::new(1, &heads("call", PAPER_LINKS, BESIDE));
        for (call, paper) in calls::CALLS {
            let theirs = paper.iter().map(|ms| format!("{ms} ms"));
            let ours = BESIDE.iter().map(|on| self.cell(Part::Calls, call, on));
            table.row(std::iter::once((*call).to_owned()).chain(theirs).chain(ours));
        }
        table
    }

    /// Table 2.
    pub fn andrew(&self) -> Table {
        let mut table = Table::new(1, &heads("phase", PAPER_LINKS, BESIDE));
        for (phase, paper) in with_total(andrew::PAPER, andrew::PAPER_TOTAL) {
            let theirs = paper.iter().map(|secs| format!("{secs} s"));
            let ours = BESIDE.iter().map(|on| self.phase(phase, on));
            table.row(std::iter::once(phase.to_owned()).chain(theirs).chain(ours));
        }
        table
    }

    fn phase(&self, phase: &str, on: &Condition) -> String {
        let once = andrew::ONCE.iter().any(|one| one.name == on.name);
        self.cell(if once { Part::AndrewSlow } else { Part::Andrew }, phase, on)
    }

    /// Table 3.
    pub fn delays(&self) -> Table {
        let mut table = Table::new(
            1,
            &[
                "cache",
                "paper: average",
                "paper: maximum",
                "average",
                "maximum",
                "updates",
                "most at once",
                "empty after",
            ],
        );
        for (on, [average, maximum]) in log::CONDITIONS.iter().zip(log::PAPER) {
            let value = |what| self.median(Part::Log, what, on.name);
            let secs = |what| value(what).map(time).unwrap_or_default();
            let count = |what| value(what).map(|count| count.to_string()).unwrap_or_default();
            table.row([
                if on.hot { "hot" } else { "cold" }.to_owned(),
                format!("{average} s"),
                format!("{maximum} s"),
                secs("average"),
                secs("maximum"),
                count("updates"),
                count("longest"),
                secs("emptied"),
            ]);
        }
        table
    }

    /// Tables 4 and 5 together.
    pub fn interference(&self) -> Table {
        let papers = ["paper: I", "II", "III", "IV", "I'", "IV'", "local"];
        let ours =
            [andrew::HELD, andrew::HELD_COLD, andrew::COLD, PARTIAL_SLOW, andrew::ALONE, EXT4];
        let mut table = Table::new(1, &heads("phase", &papers, &ours));
        let paper = andrew::PAPER_INTERFERENCE;
        for (phase, paper) in with_total(paper, andrew::PAPER_INTERFERENCE_TOTAL) {
            let theirs = paper.iter().map(|secs| format!("{secs} s"));
            let cells = ours.iter().map(|on| self.cell(Part::Andrew, phase, on));
            table.row(std::iter::once(phase.to_owned()).chain(theirs).chain(cells));
        }
        table
    }

    /// What is aimed at, and what was got.
    pub fn aims(&self) -> Table {
        let mut table = Table::new(1, &["", "at most", "got", ""]);
        for aim in self.list_aims() {
            let verdict = match aim.got {
                None => "not measured",
                Some(got) if aim.unit.counted(got) <= aim.most => "met",
                Some(_) => "missed",
            };
            let shown = |value: f64| aim.unit.shown(value);
            let got = aim.got.map(shown).unwrap_or_default();
            table.row([aim.what, shown(aim.most), got, verdict.to_owned()]);
        }
        table
    }

    fn list_aims(&self) -> Vec<Aim> {
        let total = |on: &Condition| self.median(Part::Andrew, "Total", on.name);
        let mut aims = vec![
            Aim::times(
                "Andrew, warm, partial: over the slow link against 1 Gb/s",
                1.05,
                quotient(total(&PARTIAL_SLOW), total(&PARTIAL_FAST)),
            ),
            Aim::times("the same against ext4", 1.15, quotient(total(&PARTIAL_SLOW), total(&EXT4))),
        ];
        for (call, _) in calls::CALLS {
            let on = |on: &Condition| self.median(Part::Calls, call, on.name);
            let (slow, fast) = (on(&PARTIAL_SLOW), on(&PARTIAL_FAST));
            aims.push(Aim::times(
                &format!("{call}, partial: over the slow link against 1 Gb/s"),
                1.05,
                quotient(slow, fast),
            ));
            aims.push(Aim::new(&format!("{call}, over the slow link"), 200e-6, slow, Unit::Secs));
        }
        let busy_and_not = |part, what: &str| {
            quotient(self.median(part, what, live::ON), self.median(part, what, live::OFF))
        };
        let keys = busy_and_not(Part::Stream, "round trip, s");
        let fetch = busy_and_not(Part::Demand, "a file of 100 KiB, s");
        let coming = |what| self.median(Part::Reconnect, what, aims::COMING);
        let made = |what| self.median(Part::Mkdir, what, aims::SOON);
        aims.extend([
            Aim::times(
                "a foreground that hits the cache, replay on against off",
                1.05,
                busy_and_not(Part::Foreground, "scan and read, s"),
            ),
            Aim::times(
                "round trip of a stream like that of ssh, while a large file is replayed against an idle link",
                1.3,
                keys,
            ),
            // Three of four tickets, less 15 %.
            Aim::times(
                "a file fetched on demand while replay is busy, against without",
                1.0 / (0.75 * 0.85),
                fetch,
            ),
            Aim::new("coming back: round trips", 2.0, coming("round trips"), Unit::Trips),
            Aim::new(
                "coming back: bytes in UDP datagrams",
                20e3,
                coming("bytes in UDP datagrams"),
                Unit::Bytes,
            ),
            Aim::new(
                "one mkdir with its answer: bytes in UDP datagrams",
                350.0,
                made("bytes in UDP datagrams"),
                Unit::Bytes,
            ),
            Aim::new(
                "the same with the headers of IP",
                350.0,
                made("bytes of IP packets"),
                Unit::Bytes,
            ),
        ]);
        aims
    }

    /// What was cancelled, in words.
    pub fn cancelled(&self) -> Table {
        let mut table = Table::new(
            1,
            &[
                "work",
                "updates made",
                "sent",
                "cancelled",
                "bytes up, sent at once",
                "bytes up, sent later",
            ],
        );
        for work in ["edit and compile", "git"] {
            let value =
                |what: &str, on: &str| self.median(Part::Cancelled, what, &format!("{work}, {on}"));
            let made = value("updates", "connected");
            let sent = value("updates", "disconnected, then replayed");
            let share = quotient(sent, made).map(|left| format!("{:.0} %", (1.0 - left) * 100.0));
            let count = |value: Option<f64>| value.map(|one| one.to_string()).unwrap_or_default();
            let size = |value: Option<f64>| value.map(|one| bytes(one as u64)).unwrap_or_default();
            table.row([
                work.to_owned(),
                count(made),
                count(sent),
                share.unwrap_or_default(),
                size(value("bytes up", "connected")),
                size(value("bytes up", "disconnected, then replayed")),
            ]);
        }
        table
    }

    /// The least, the middle and the greatest of the stream's round trips, idle and busy; and how
    /// much of the links was taken.
    pub fn felt(&self) -> Table {
        let mut table = Table::new(1, &["", live::OFF, live::ON]);
        let of = |part, what: &str, on: &str| self.median(part, what, on);
        for (part, what) in [
            (Part::Foreground, "scan and read, s"),
            (Part::Foreground, "sent meanwhile, of the link's rate"),
            (Part::Stream, "round trip, s"),
            (Part::Stream, "sent of the link's rate"),
            (Part::Demand, "a file of 100 KiB, s"),
            (Part::Demand, "of the link down"),
            (Part::Demand, "of the link up"),
        ] {
            let shown = |on| of(part, what, on).map(|value| format!("{value:.4}"));
            table.row([
                what.to_owned(),
                shown(live::OFF).unwrap_or_default(),
                shown(live::ON).unwrap_or_default(),
            ]);
        }
        table
    }

    /// What one mkdir and coming back cost on the wire.
    pub fn wire(&self) -> Table {
        let columns = ["packets", "bytes in UDP datagrams", "bytes of IP packets"];
        let heads: Vec<_> = ["", "when"].into_iter().chain(columns).collect();
        let mut table = Table::new(2, &heads);
        for (part, name, on) in [
            (Part::Mkdir, "mkdir with its answer", aims::SOON),
            (Part::Mkdir, "the same", aims::AFTER_SILENCE),
            (Part::Reconnect, "coming back", aims::COMING),
            (Part::Reconnect, "the same", aims::REMOUNTED),
        ] {
            let cells = columns.map(|what| {
                self.median(part, what, on).map(|value| value.to_string()).unwrap_or_default()
            });
            table.row([name.to_owned(), on.to_owned()].into_iter().chain(cells));
        }
        table
    }
}

#[derive(Clone, Copy)]
enum Unit {
    Times,
    Secs,
    Bytes,
    Trips,
}

impl Unit {
    /// By the clock the disks, and how often one looks, are some thousandths of a round trip.
    fn counted(self, value: f64) -> f64 {
        match self {
            Unit::Trips => (value * 10.0).round() / 10.0,
            Unit::Times | Unit::Secs | Unit::Bytes => value,
        }
    }

    fn shown(self, value: f64) -> String {
        match self {
            Unit::Times => format!("{value:.2} times"),
            Unit::Secs => time(value),
            Unit::Bytes => bytes(value as u64),
            Unit::Trips => format!("{value:.1}"),
        }
    }
}

struct Aim {
    what: String,
    most: f64,
    got: Option<f64>,
    unit: Unit,
}

impl Aim {
    fn new(what: &str, most: f64, got: Option<f64>, unit: Unit) -> Self {
        Self { what: what.into(), most, got, unit }
    }

    fn times(what: &str, most: f64, got: Option<f64>) -> Self {
        Self::new(what, most, got, Unit::Times)
    }
}

fn quotient(of: Option<f64>, to: Option<f64>) -> Option<f64> {
    middle(vec![of? / to?])
}

fn with_total<const N: usize>(
    rows: &[[u32; N]],
    total: [u32; N],
) -> impl Iterator<Item = (&'static str, [u32; N])> {
    let names = andrew::PHASES.iter().copied().chain(["Total"]);
    names.zip(rows.iter().copied().chain([total]))
}
