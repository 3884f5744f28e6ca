//! A filter that is slow to believe chance and quick to see that something has changed.
//! Holds: one or two values out of the way move it by no more than a tenth of the way each; of three
//! in a row on one side the one that is least so is believed.
//! From: Kim and Noble, "Mobile network estimation" (MobiCom 2001): two exponentially weighted
//! filters, of which the control limits of the moving range choose one. What lies within the limits is
//! chance here, and taken by the stable one: a mode is to follow nothing else.

/// The share of a new value in the estimate.
const STABLE: f64 = 0.1;
const AGILE: f64 = 0.9;
/// The share of a new range in the mean range.
const RANGE: f64 = 0.1;
/// Control limits: so many standard deviations, and the mean range of neighbours in one of them.
const LIMIT_DEVIATIONS: f64 = 3.0;
const RANGE_IN_DEVIATION: f64 = 1.128;
/// So many values in a row beyond the same limit are no chance.
const RUN: usize = 3;

/// Of values of any unit.
#[derive(Clone, Copy, Debug)]
pub struct FlipFlop {
    /// The least standard deviation that is counted with: values that are all alike would else make
    /// every other one a change.
    deviation_least: f64,
    state: Option<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    mean: f64,
    last: f64,
    range: f64,
    /// Values in a row beyond one limit, the newest first; how many, and whether it is the upper one.
    beyond: [f64; RUN],
    beyond_len: usize,
    above: bool,
}

impl FlipFlop {
    pub fn new(deviation_least: f64) -> FlipFlop {
        FlipFlop { deviation_least, state: None }
    }

    pub fn value(&self) -> Option<f64> {
        self.state.map(|state| state.mean)
    }

    /// Values that are no numbers are passed over.
    pub fn take(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        let Some(state) = &mut self.state else {
            let beyond = [value; RUN];
            let (mean, last) = (value, value);
            self.state =
                Some(State { mean, last, range: 0.0, beyond, beyond_len: 0, above: false });
            return;
        };
        let deviation = (state.range / RANGE_IN_DEVIATION).max(self.deviation_least);
        match state.believed(value, deviation * LIMIT_DEVIATIONS) {
            // The step itself is no range of chance.
            Some(believed) => {
                state.mean += AGILE * (believed - state.mean);
                state.range *= 1.0 - RANGE;
            }
            None => {
                state.mean += STABLE * (value - state.mean);
                state.range += RANGE * ((value - state.last).abs() - state.range);
            }
        }
        state.last = value;
    }
}

impl State {
    /// What is to be believed at once: the least of a run of values beyond the limit.
    fn believed(&mut self, value: f64, limit: f64) -> Option<f64> {
        let off = value - self.mean;
        if off.abs() <= limit {
            self.beyond_len = 0;
            return None;
        }
        let above = off > 0.0;
        if above != self.above {
            self.beyond_len = 0;
        }
        self.above = above;
        self.beyond_len = (self.beyond_len + 1).min(RUN);
        self.beyond.rotate_right(1);
        self.beyond[0] = value;
        let pick = if above { f64::min } else { f64::max };
        (self.beyond_len == RUN).then(|| self.beyond.into_iter().fold(value, pick))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn after(values: impl IntoIterator<Item = f64>) -> f64 {
        let mut filter = FlipFlop::new(0.1);
        values.into_iter().for_each(|value| filter.take(value));
        filter.value().unwrap()
    }

    #[test]
    fn a_step_is_believed_with_its_third_value() {
        let steady = || std::iter::repeat_n(1.0, 20);
        let step = |values| after(steady().chain(std::iter::repeat_n(5.0, values)));
        assert!(step(2) < 1.8, "{}", step(2));
        assert!(step(3) > 4.5, "{}", step(3));
        let back = after(std::iter::repeat_n(5.0, 20).chain([1.0; 3]));
        assert!(back < 1.5, "{back}");
    }

    #[test]
    fn single_values_out_of_the_way_are_not_believed() {
        let values = (0..200).map(|at| if at % 7 == 6 { 6.0 } else { 1.0 });
        let mean = after(values);
        assert!(mean < 2.2, "{mean}");
    }

    #[test]
    fn nothing_is_known_before_the_first_value_and_all_of_it_with_that() {
        let mut filter = FlipFlop::new(0.1);
        assert_eq!(filter.value(), None);
        filter.take(f64::NAN);
        filter.take(f64::INFINITY);
        assert_eq!(filter.value(), None);
        filter.take(7.0);
        assert_eq!(filter.value(), Some(7.0));
    }

    proptest! {
        #[test]
        fn prop_the_estimate_lies_among_what_was_taken(
            values in prop::collection::vec(-50.0_f64..50.0, 1..200),
        ) {
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let mean = after(values);
            prop_assert!(mean >= least - 1e-6 && mean <= most + 1e-6);
        }

        #[test]
        fn prop_a_step_of_any_height_is_followed(height in 0.5_f64..20.0, down: bool) {
            let height = if down { -height } else { height };
            let mean = after(std::iter::repeat_n(0.0, 10).chain(std::iter::repeat_n(height, 4)));
            prop_assert!((mean - height).abs() < height.abs() * 0.15, "{mean} of {height}");
        }
    }
}
