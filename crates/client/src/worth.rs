//! What a processor may do to make contents smaller, by how long the link takes for them as they
//! are.
//! Holds: making a delta takes about as long as the link would without it, at most; where the
//! link is unknown, bytes count.
//! From: beyond LBFS, which had slow links alone.

use chunks::delta::Effort;

/// Bytes of base and target together that a processor goes through in a second, about, and one
/// that has other things to do as well.
const USUAL_RATE: u64 = 8 << 20;
const QUICK_RATE: u64 = 64 << 20;

/// The effort that a delta is worth where `alone` bytes would travel without it, at so many a
/// second, and base and target are `both`. None: they are better sent at once.
pub(crate) fn effort(rate: Option<u64>, alone: u64, both: u64) -> Option<Effort> {
    let Some(rate) = rate else { return Some(Effort::Usual) };
    let pays = |speed: u64| {
        let (coding, sending) =
            (u128::from(both) * u128::from(rate), u128::from(alone) * u128::from(speed));
        coding <= sending
    };
    match () {
        () if pays(USUAL_RATE) => Some(Effort::Usual),
        () if pays(QUICK_RATE) => Some(Effort::Quick),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KB: u64 = 1000;
    const ADSL: Option<u64> = Some(43_500);
    const FAST: Option<u64> = Some(125_000_000);

    #[test]
    fn over_a_slow_link_a_delta_is_worth_all_there_is_and_over_a_fast_one_nothing() {
        for rate in [Some(1_200), Some(8_000), ADSL, None] {
            assert_eq!(effort(rate, 1400 * KB, 2800 * KB), Some(Effort::Usual), "{rate:?}");
        }
        for alone in [KB, 100 * KB, 1400 * KB] {
            assert_eq!(effort(FAST, alone, 2 * alone), None);
        }
    }

    #[test]
    fn a_fast_link_does_not_wait_seconds_for_a_few_bytes_less() {
        assert_eq!(effort(Some(1 << 20), 100 * KB, 4100 * KB), Some(Effort::Quick));
        assert_eq!(effort(Some(8 << 20), 100 * KB, 4100 * KB), None);
        assert_eq!(effort(Some(4 << 20), 1400 * KB, 2800 * KB), Some(Effort::Usual));
        assert_eq!(effort(Some(10 << 20), 1400 * KB, 2800 * KB), Some(Effort::Quick));
    }

    #[test]
    fn no_numbers_are_too_large() {
        assert_eq!(effort(Some(u64::MAX), u64::MAX, u64::MAX), None);
        assert_eq!(effort(Some(0), 0, u64::MAX), Some(Effort::Usual));
    }
}
