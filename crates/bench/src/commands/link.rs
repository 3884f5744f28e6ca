//! `bench link`: links to look at and to play with.

use crate::table::{self, Table};
use anyhow::{Context, Result, bail};
use bench::profile::rate;
use bench::{Lane, Profile};
use clap::Subcommand;
use std::io::{BufRead, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Emulated links
#[derive(Subcommand)]
pub enum Link {
    /// List the profiles
    List,
    /// Make a link and keep it until the end of the input
    Up {
        #[arg(long, default_value = "adsl")]
        profile: String,
    },
    /// Measure what TCP gets through a link, each way
    Speed {
        #[arg(long, default_value = "lan")]
        profile: String,
        /// How long to send, in seconds
        #[arg(long, default_value_t = 3.0)]
        seconds: f64,
    },
}

impl Link {
    pub fn run(self) -> Result<()> {
        match self {
            Self::List => list(),
            Self::Up { profile } => up(&Profile::named(&profile)?),
            Self::Speed { profile, seconds } => {
                let seconds = Duration::try_from_secs_f64(seconds).context("not a time")?;
                speed(&Profile::named(&profile)?, seconds)
            }
        }
    }
}

fn list() -> Result<()> {
    let mut table = Table::new(3, &["profile", "link", ""]);
    for profile in Profile::all() {
        table.row([profile.name.clone(), profile.words(), profile.about]);
    }
    print!("{}", table.to_terminal());
    Ok(())
}

const HELP: &str = "cut, restore, stats, reset, rate BITS_PER_SEC, profile NAME, end";

fn up(profile: &Profile) -> Result<()> {
    let link = bench::Link::start(profile)?;
    println!("{}: {}", profile.name, profile.words());
    for (end, at) in [("near", link.near()), ("far", link.far())] {
        println!("{end:4}  {}  sudo nsenter --net=/run/netns/{} bash", at.address(), at.name());
    }
    println!("{HELP}");
    for line in std::io::stdin().lock().lines() {
        let line = line.context("cannot read the input")?;
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            [] => {}
            ["end" | "quit" | "exit"] => break,
            ["cut"] => link.cut(),
            ["restore"] => link.restore(),
            ["stats"] => print!("{}", stats(&link)),
            ["reset"] => link.reset_counters(),
            ["rate", bits] => match bits.parse() {
                Ok(bits) if bits > 0 => set_rate(&link, bits),
                _ => println!("{bits} is not a number of bits per second"),
            },
            ["profile", name] => match Profile::named(name) {
                Ok(profile) => link.set_profile(&profile),
                Err(error) => println!("{error}"),
            },
            _ => println!("{HELP}"),
        }
    }
    Ok(())
}

fn set_rate(link: &bench::Link, bits_per_sec: u64) {
    let [up, down] = link.lanes().map(|lane| {
        let queue_bytes_max = Lane::new(bits_per_sec, lane.delay).queue_bytes_max;
        Lane { bits_per_sec, queue_bytes_max, ..lane }
    });
    link.set_profile(&Profile { name: String::new(), about: String::new(), up, down });
}

fn stats(link: &bench::Link) -> String {
    let traffic = link.counters();
    let [up, down] = link.lanes();
    let mut table =
        Table::new(1, &["", "rate", "carried", "delivered", "queue full", "lost", "cut"]);
    for (name, lane, counters) in [("up", up, traffic.up), ("down", down, traffic.down)] {
        let mut cells = vec![name.to_owned(), rate(lane.bits_per_sec)];
        let all =
            [counters.carried, counters.delivered, counters.full, counters.lost, counters.cut];
        cells.extend(all.map(|t| format!("{} in {}", table::bytes(t.bytes), t.packets)));
        table.row(cells);
    }
    table.to_terminal()
}

const PORT: u16 = 7001;

fn speed(profile: &Profile, seconds: Duration) -> Result<()> {
    let link = bench::Link::start(profile)?;
    println!("{}: {}", profile.name, profile.words());
    let mut table = Table::new(1, &["", "TCP gets", "of the link"]);
    for (name, from, to, lane) in [
        ("up", link.near(), link.far(), profile.up),
        ("down", link.far(), link.near(), profile.down),
    ] {
        let got = tcp(from, to, seconds)?;
        let share = got / lane.bits_per_sec as f64 * 100.0;
        table.row([name.to_owned(), rate(got as u64 / 1000 * 1000), format!("{share:.0} %")]);
    }
    print!("{}", table.to_terminal());
    Ok(())
}

/// The bits per second that come through a TCP connection.
fn tcp(from: &bench::End, to: &bench::End, seconds: Duration) -> Result<f64> {
    let address = (to.address(), PORT);
    let system = |doing| move |source| bench::Error::System { doing, source };
    let listener = to.inside(|| TcpListener::bind(address).map_err(system("cannot listen")))?;
    let mut sender =
        from.inside(|| TcpStream::connect(address).map_err(system("cannot connect")))?;
    let (mut receiver, _) = listener.accept().context("cannot accept")?;
    let sending = std::thread::spawn(move || {
        let (block, start) = (vec![7; 64 * 1024], Instant::now());
        while start.elapsed() < seconds && sender.write_all(&block).is_ok() {}
    });
    let (start, mut bytes, mut buffer) = (Instant::now(), 0, vec![0; 256 * 1024]);
    loop {
        match receiver.read(&mut buffer).context("the connection broke")? {
            0 => break,
            some => bytes += some,
        }
    }
    let took = start.elapsed();
    if sending.join().is_err() || bytes == 0 {
        bail!("nothing came through the link");
    }
    Ok(bytes as f64 * 8.0 / took.as_secs_f64())
}
