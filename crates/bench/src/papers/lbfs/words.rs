//! The text around the figures, with what the paper says of its own.

use super::{Figure, RATE_KBITS, ROUND_TRIP_MS, Report};

pub fn markdown(report: &Report, base: &str) -> String {
    let mut text = format!("# {}: the figures of LBFS\n\n", report.date);
    text += &format!("- Link, where no other is named: {}\n", report.link);
    text += &format!("- Machine: {}\n", report.machine.words());
    for system in &report.systems {
        text += &format!("- {system}\n");
    }
    text += "\nOne run each. *Time* is until the last call returned, *at origin* until everything \
             was at the server, that time included; bytes are those of IP packets until then. \
             Everybody begins with what is worked on in its cache. A > says that the phase was \
             ended then, and its bytes are those until then. rsync -z works on a local disk and \
             pushes afterwards; ext4 goes nowhere.\n\n\
             The figures follow those of the talk that LBFS was presented with. Its text has no \
             numbers of its own measurements but those of the link (1.5 Mb/s down, 348 kb/s up, \
             30 ms) and one comparison; they stand beside ours below. What is compiled there is \
             emacs, here LuaJIT; what is saved there is a Word document of 1.4 MB, here a text of \
             that size, and a docx of that size, packed anew as office programs do.\n";
    text += &systems(report, base);
    let figure = |title: &str, about: &str, plot: &str, table: String| {
        format!("\n## {title}\n\n{about}\n\n![{title}]({base}-{plot}.svg)\n\n{table}")
    };
    text += &figure(
        "Compile time over bandwidth",
        &format!(
            "Follows *Compile time vs. bandwidth*, with a round trip of {ROUND_TRIP_MS} ms. The \
             paper's text gives no numbers."
        ),
        "rates",
        report.by_value(Figure::Rates, "recompile").to_markdown(),
    );
    let about = format!(
        "Follows *Effect of network latency on performance*, at {RATE_KBITS} kb/s each way. The \
         paper's text gives no numbers."
    );
    for (title, figure_of, workload, plot) in [
        ("Saving over delays", Figure::DelaysDocument, "save text", "delays-document"),
        ("Recompiling over delays", Figure::DelaysRecompile, "recompile", "delays-recompile"),
    ] {
        let table = report.by_value(figure_of, workload).to_markdown();
        text += &figure(title, &about, plot, table);
    }
    let failures = report.failures();
    if !failures.is_empty() {
        text += "\n## Failed\n\n";
        text.extend(failures.iter().map(|failure| format!("- {failure}\n")));
    }
    text
}

fn systems(report: &Report, base: &str) -> String {
    let mut text = String::from(
        "\n## Bandwidth and time by system\n\nFollows *Client→server bandwidth*, *Bandwidth: \
         emacs recompile*, *Performance: emacs recompile* and *Saving 1.4 MByte MSWord doc*.\n\n",
    );
    text += &format!("![Bandwidth]({base}-bandwidth.svg)\n\n![Time]({base}-time.svg)\n");
    for (title, workload, paper) in [
        ("Saving a text of 1.4 MB", "save text", "no numbers in its text"),
        ("Saving a docx of 1.4 MB", "save docx", "no such format then"),
        (
            "Edit and recompile",
            "recompile",
            "\"LBFS on ADSL beats NFS on 100Mbit/sec LAN\". With files on a local disk (ext4) \
             there is no network file system that could beat it; that row is the bound here",
        ),
    ] {
        text += &format!("\n### {title}\n\nThe paper: {paper}.\n\n");
        text += &report.by_system(workload).to_markdown();
    }
    text
}
