//! What can be measured of mounts, in the text form of Prometheus (OpenMetrics 1.0).

use anyhow::{Context, Result};
use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use protocol::{Mode, Status};
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;

mod reached;

/// As Prometheus asks for it.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Number = Gauge<f64, AtomicU64>;
type Sum = Counter<f64, AtomicU64>;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Mount {
    mount: String,
    volume: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Traffic {
    mount: String,
    class: String,
    direction: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct InMode {
    mount: String,
    mode: &'static str,
}

/// A metric that has one value for each mount.
struct Row {
    name: &'static str,
    help: &'static str,
    value: fn(&Status) -> Option<f64>,
}

/// Values that go up and down.
const GAUGES: [Row; 23] = [
    row("link_up", "Whether there is a session with the server", |s| {
        Some(f64::from(u8::from(s.link.connected)))
    }),
    row("link_round_trip_seconds", "The round trip as last measured", |s| {
        s.link.round_trip_ms.map(|ms| ms / 1000.0)
    }),
    row("link_round_trip_min_seconds", "The least round trip lately", |s| {
        s.link.round_trip_min_ms.map(|ms| ms / 1000.0)
    }),
    row("link_up_bytes_per_second", "Bytes a second upwards, as last estimated", |s| {
        s.link.rate_up.map(number)
    }),
    row("link_down_bytes_per_second", "Bytes a second downwards, as last estimated", |s| {
        s.link.rate_down.map(number)
    }),
    row("link_estimate_round_trip_seconds", "The round trip, chance left out", |s| {
        s.link.estimate.round_trip_ms.map(|ms| ms / 1000.0)
    }),
    row("link_estimate_up_bytes_per_second", "Bytes a second that it carries upwards", |s| {
        s.link.estimate.rate_up.map(number)
    }),
    row("link_estimate_loss_ratio", "Share of packets sent that are lost", |s| {
        s.link.estimate.loss
    }),
    row("log_updates", "Updates that are not at the server", |s| Some(number(s.pending.updates))),
    row("log_bytes", "Contents that these updates name", |s| Some(number(s.pending.bytes))),
    row("log_oldest_seconds", "Age of the oldest of them", |s| {
        Some(number(s.pending.oldest_secs.unwrap_or(0)))
    }),
    row("log_held_back", "Whether nothing of them leaves just now", |s| {
        Some(f64::from(u8::from(s.pending.held_back.is_some())))
    }),
    row("files_open_for_writing", "Files open and written to", |s| {
        Some(number(s.pending.open_for_writing))
    }),
    row("log_wait_max_seconds", "The longest that an update stood in the log", |s| {
        Some(number(s.replayed.waited_most_ms) / 1000.0)
    }),
    row("cache_files", "Files that are cached", |s| Some(number(s.cache.files))),
    row("cache_bytes", "Bytes that are cached", |s| Some(number(s.cache.bytes))),
    row("cache_max_bytes", "The most bytes that are cached", |s| Some(number(s.cache.bytes_max))),
    row("tables_bytes", "Bytes that the tables take of the disk", |s| {
        Some(number(s.cache.tables_bytes))
    }),
    row("stale_files", "Files that are out of date by policy", |s| Some(number(s.stale))),
    row("budget_spent_bytes", "Bytes over the link in this month", |s| {
        Some(number(s.budget.spent))
    }),
    row("budget_bytes", "Bytes that may go over the link in a month", |s| {
        s.budget.bytes_max.map(number)
    }),
    row("conflicts_listed", "Conflicts of the volume that nobody has seen to", |s| {
        s.conflicts_listed.map(number)
    }),
    row("missing_above_chunks", "Chunks that the server has lost", |s| {
        Some(number(s.wanted.missing))
    }),
];

/// Values that grow from the mount on.
const COUNTERS: [Row; 9] = [
    row("cache_hits", "Calls that the cache answered", |s| Some(number(s.cache.hits))),
    row("cache_misses", "Calls that took the server", |s| Some(number(s.cache.misses))),
    row("conflicts", "Updates that were kept aside", |s| Some(number(s.conflicts))),
    row("cancelled_updates", "Updates that no longer mattered and were not sent", |s| {
        Some(number(s.cancelled.updates))
    }),
    row("cancelled_bytes", "Contents that only those named", |s| Some(number(s.cancelled.bytes))),
    row("wire_sent_bytes", "Bytes sent, with all headers", |s| Some(number(s.wire_bytes_sent))),
    row("wire_received_bytes", "Bytes received, with all headers", |s| {
        Some(number(s.wire_bytes_received))
    }),
    row("damaged_files", "Files whose contents this machine's disk did not keep", |s| {
        Some(number(s.damage.len() as u64))
    }),
    row(
        "mended_bytes",
        "Bytes of the cache that this machine's disk had lost and that were mended",
        |s| Some(number(s.mended.bytes)),
    ),
];

const fn row(name: &'static str, help: &'static str, value: fn(&Status) -> Option<f64>) -> Row {
    Row { name, help, value }
}

/// Exact below 2^53, which is 8 PiB.
fn number(count: u64) -> f64 {
    count as f64
}

/// A label's value as the format wants it: the library writes it as it is.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

const MODES: [(Mode, &str); 4] = [
    (Mode::Connected, "connected"),
    (Mode::Partial, "partial"),
    (Mode::FetchOnly, "fetch-only"),
    (Mode::Disconnected, "disconnected"),
];

/// All of it, of these mounts.
pub fn text(statuses: &[Status]) -> Result<String> {
    let mut registry = Registry::with_prefix("farfs");
    let label = |status: &Status| Mount {
        mount: escaped(&status.mountpoint),
        volume: escaped(&status.volume),
    };
    for Row { name, help, value } in &GAUGES {
        let family = Family::<Mount, Number>::default();
        for status in statuses {
            if let Some(value) = value(status) {
                family.get_or_create(&label(status)).set(value);
            }
        }
        registry.register(*name, *help, family);
    }
    for Row { name, help, value } in &COUNTERS {
        let family = Family::<Mount, Sum>::default();
        for status in statuses {
            if let Some(value) = value(status) {
                family.get_or_create(&label(status)).inc_by(value);
            }
        }
        registry.register(*name, *help, family);
    }
    register_by_class(&mut registry, statuses);
    registry.register_collector(Box::new(reached::Reached::of(statuses)));
    let mut text = String::new();
    encode(&mut text, &registry).context("the metrics could not be written")?;
    Ok(text)
}

fn register_by_class(registry: &mut Registry, statuses: &[Status]) {
    let traffic = Family::<Traffic, Sum>::default();
    let modes = Family::<InMode, Number>::default();
    for status in statuses {
        let mount = &escaped(&status.mountpoint);
        for bytes in &status.traffic {
            for (direction, count) in [("sent", bytes.sent), ("received", bytes.received)] {
                let (mount, class) = (mount.clone(), bytes.class.clone());
                traffic.get_or_create(&Traffic { mount, class, direction }).inc_by(number(count));
            }
        }
        for (mode, name) in MODES {
            let is_so = f64::from(u8::from(status.mode == mode));
            modes.get_or_create(&InMode { mount: mount.clone(), mode: name }).set(is_so);
        }
    }
    registry.register("traffic_bytes", "Bytes of messages by class, before compression", traffic);
    registry.register("mode", "1 for the mode that a mount works in", modes);
}

/// Answers Prometheus with what `status` says, until the runtime ends.
pub async fn serve(
    address: SocketAddr,
    status: impl Fn() -> Status + Clone + Send + Sync + 'static,
) -> Result<()> {
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address} for --metrics"))?;
    let answer = move || {
        let text = text(&[status()]);
        async move {
            match text {
                Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
                Err(error) => {
                    let status = axum::http::StatusCode::INTERNAL_SERVER_ERROR;
                    (status, format!("{error:#}\n")).into_response()
                }
            }
        }
    };
    let router = Router::new().route("/metrics", get(answer));
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "metrics are not served any more");
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::tests::example;

    #[test]
    fn each_mount_has_a_line_of_each_metric_and_what_is_unknown_has_none() {
        let other = Status { mountpoint: "/other \"mount\"".into(), ..example() };
        let text = text(&[example(), other]).unwrap();
        let expected = [
            "# TYPE farfs_log_updates gauge",
            "farfs_log_updates{mount=\"/mnt\",volume=\"main\"} 2.0",
            "farfs_log_oldest_seconds{mount=\"/mnt\",volume=\"main\"} 130.0",
            "farfs_cache_hits_total{mount=\"/other \\\"mount\\\"\",volume=\"main\"} 3.0",
            "farfs_traffic_bytes_total{mount=\"/mnt\",class=\"replay\",direction=\"sent\"} 10.0",
            "farfs_mode{mount=\"/mnt\",mode=\"partial\"} 1.0",
            "farfs_mode{mount=\"/mnt\",mode=\"connected\"} 0.0",
            "# TYPE farfs_reach_seconds histogram",
            "farfs_reach_seconds_sum{mount=\"/mnt\",volume=\"main\",reach=\"home\"} 90.5",
            "farfs_reach_seconds_count{mount=\"/mnt\",volume=\"main\",reach=\"home\"} 3",
            "farfs_reach_seconds_bucket{le=\"0.5\",mount=\"/mnt\",volume=\"main\",reach=\"home\"} 2",
            "farfs_reach_seconds_bucket{le=\"+Inf\",mount=\"/mnt\",volume=\"main\",reach=\"home\"} 3",
            "# EOF",
        ];
        for line in expected {
            assert!(text.lines().any(|other| other == line), "{line} in\n{text}");
        }
        assert!(!text.contains("farfs_budget_bytes{"), "{text}");
        assert!(!text.contains("link_down_bytes_per_second{"), "{text}");
    }
}
