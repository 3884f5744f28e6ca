//! When everybody who is connected had been told of what was done here.

use super::count;
use protocol::{Reach, ReachTimes};

/// Nothing, as long as nothing is known.
pub fn in_short(reached: &[ReachTimes]) -> Option<String> {
    let visible = reached.iter().find(|times| times.reach == Reach::Visible)?;
    if visible.updates == 0 {
        return None;
    }
    let seconds = |us: u64| us as f64 / 1e6;
    let mean = seconds(visible.sum_us) / visible.updates as f64;
    Some(format!(
        "by all who are connected {mean:.1} s after it was done on average, {:.1} s at most ({} \
         looked at)",
        seconds(visible.most_us),
        count(visible.updates, "update")
    ))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn example() -> ReachTimes {
        let within = vec![(250_000, 0), (500_000, 2), (60_000_000, 0)];
        let (sum_us, most_us) = (90_500_000, 90_000_000);
        ReachTimes { reach: Reach::Home, updates: 3, sum_us, most_us, within }
    }

    #[test]
    fn what_is_not_known_is_not_told() {
        assert_eq!(in_short(&[]), None);
        assert_eq!(in_short(&[example()]), None);
        let unknown = ReachTimes { reach: Reach::Visible, updates: 0, ..example() };
        assert_eq!(in_short(&[example(), unknown]), None);
        let known = ReachTimes { reach: Reach::Visible, ..example() };
        let told = "by all who are connected 30.2 s after it was done on average, 90.0 s at most \
                    (3 updates looked at)";
        assert_eq!(in_short(&[known]).as_deref(), Some(told));
    }
}
