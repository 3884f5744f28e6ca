//! The text around the tables.

use super::Report;

const ABOUT: &str = "\
Measured by `bench papers partially-connected`. *Slow* is the link above. Medians of all runs; those \
that are compared were taken in turns, and each is in the JSON file beside. *Partial*, *connected*, \
*fetch-only* and *disconnected* are the modes of FarFS. The paper's machine was a 486 of 33 MHz whose \
slow link, a null modem, had no delay to speak of: it is the columns beside one another that compare, \
not the seconds. A > says that it was given up then.\n";

const CALLS: &str = "\
Times of single calls, each on a file of its own. *create* is the open alone; *write* is 4 KiB and the close with which they become \
an update. In the paper every call waits until its record is on the disk; FarFS has it in the journal, \
where a kill loses nothing, and syncs the journal at once, for all calls that have gathered \
(`--durability sync` waits for it).\n";

const ANDREW: &str = "\
On LuaJIT's source, from a directory of the volume to another one, with cached contents and attributes. \
What is done is replayed meanwhile; the next phase does not wait for it.\n";

const DELAYS: &str = "\
From when an update is logged until its verdict has come. *Cold* is, as in the paper, the cache of \
attributes: the volume has just been mounted again, and what is cached counts once the server has said \
that it is current.\n";

const INTERFERENCE: &str = "\
The paper's I (hot, replay off), II (cold, off), III (cold, on) and IV (hot, on) stand as *fetch-only*, \
*fetch-only, cold*, *partial, cold* and *partial*. In FarFS updates are held in fetch-only mode, which \
asks nobody whether what is cached is current: I and I' are one, and there is no IV'. *Disconnected* \
is beside them, which the paper found to be no different.\n";

pub fn markdown(report: &Report, base: &str) -> String {
    let mut text = format!("# {}: the tables of partially connected operation\n\n", report.date);
    text += &format!("- Slow link: {}\n", report.link);
    text += &format!("- Machine: {}\n", report.machine.words());
    for system in &report.systems {
        text += &format!("- {system}\n");
    }
    text += &format!("\n{ABOUT}");
    let mut section = |title: &str, about: &str, table: String| {
        text += &format!("\n## {title}\n\n{about}\n{table}");
    };
    section("What is aimed at", "", report.aims().to_markdown());
    section("Table 1: single calls", CALLS, report.calls().to_markdown());
    section("Table 2: the Andrew benchmark", ANDREW, report.andrew().to_markdown());
    let mut delays = report.delays().to_markdown();
    if !report.moments.is_empty() {
        delays = format!(
            "![Figure 1]({base}-log.svg)\n\nFigure 1: in the paper 222 updates are logged, no more \
             than 99 of them pending at any time.\n{}\n{delays}",
            ends(report)
        );
    }
    section("Table 3 and figure 1: time in the log", DELAYS, delays);
    section("Tables 4 and 5: interference", INTERFERENCE, report.interference().to_markdown());
    section("What others feel", "Medians.\n", report.felt().to_markdown());
    let about = "Both ways. Headers of IPv4 and UDP are 28 bytes a packet. After 20 s of silence the \
                 lease on what is cached is renewed first.\n";
    section("On the wire", about, report.wire().to_markdown());
    let about = "Twenty rounds of work on a built tree: in connected mode, where each update is sent \
                 and judged by itself, and without a link, with replay at the end.\n";
    section("What is cancelled", about, report.cancelled().to_markdown());
    if !report.failures.is_empty() {
        text += "\n## Not measured\n\n";
        text.extend(report.failures.iter().map(|failure| format!("- {failure}\n")));
    }
    text
}

/// When the phases ended, under the figure.
fn ends(report: &Report) -> String {
    let lines = super::log::CONDITIONS.iter().map(|condition| {
        let ends = super::andrew::PHASES.iter().filter_map(|phase| {
            let what = format!("end of {phase}");
            let secs = report.median(super::Part::Log, &what, condition.name)?;
            Some(format!("{phase} {secs:.1} s"))
        });
        let ends: Vec<_> = ends.collect();
        format!("Ends of the phases, {}: {}.\n", condition.name, ends.join(", "))
    });
    lines.collect()
}
