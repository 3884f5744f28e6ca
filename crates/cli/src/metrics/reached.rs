//! How long updates took to come how far, as histograms.

use super::{escaped, number};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use protocol::{Reach, ReachTimes, Status};

const HELP: &str = "How long updates took from when they were logged: logged, until they were on \
    this machine's disk; safe, on another machine; home, at the server; visible, until everybody \
    had been told, of what nobody waited for only here and there";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    mount: String,
    volume: String,
    reach: &'static str,
}

/// One row of the family for each mount and reach.
#[derive(Debug)]
pub(super) struct Reached(Vec<(Labels, ReachTimes)>);

impl Reached {
    pub fn of(statuses: &[Status]) -> Reached {
        let rows = statuses.iter().flat_map(|status| {
            status.reached.iter().map(|times| {
                let labels = Labels {
                    mount: escaped(&status.mountpoint),
                    volume: escaped(&status.volume),
                    reach: match times.reach {
                        Reach::Logged => "logged",
                        Reach::Safe => "safe",
                        Reach::Visible => "visible",
                        Reach::Home => "home",
                    },
                };
                (labels, times.clone())
            })
        });
        Reached(rows.collect())
    }
}

impl Collector for Reached {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let kind = MetricType::Histogram;
        let mut family = encoder.encode_descriptor("reach_seconds", HELP, None, kind)?;
        for (labels, times) in &self.0 {
            Histogram(times).encode(family.encode_family(labels)?)?;
        }
        Ok(())
    }
}

struct Histogram<'a>(&'a ReachTimes);

impl EncodeMetric for Histogram<'_> {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), std::fmt::Error> {
        let ReachTimes { updates, sum_us, within, .. } = self.0;
        let longer = updates.saturating_sub(within.iter().map(|(_, count)| count).sum());
        let bounded = within.iter().map(|(bound, count)| (number(*bound) / 1e6, *count));
        let buckets: Vec<(f64, u64)> = bounded.chain([(f64::MAX, longer)]).collect();
        let sum = number(*sum_us) / 1e6;
        encoder.encode_histogram::<NoLabelSet>(sum, *updates, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
