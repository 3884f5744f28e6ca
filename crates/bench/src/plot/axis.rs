//! From values to places, and the values that are written beside an axis.

/// About so many values are written beside an axis.
const TICKS: f64 = 6.0;

/// A range of values, and whether equal steps are equal factors.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    low: f64,
    high: f64,
    log: bool,
}

impl Axis {
    /// From zero to the greatest, rounded up to a tick.
    pub fn linear(values: impl Iterator<Item = f64>) -> Self {
        let high = values.fold(0.0, f64::max);
        let high = if high > 0.0 { high } else { 1.0 };
        let step = step(high);
        Self { low: 0.0, high: (high / step).ceil() * step, log: false }
    }

    /// From the least to the greatest by factors, with some room. Only what is above zero counts.
    pub fn log(values: impl Iterator<Item = f64>) -> Self {
        const ROOM: f64 = 1.25;
        let positive = values.filter(|&value| value > 0.0);
        let (low, high) = positive
            .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        if !low.is_finite() {
            return Self { low: 1.0, high: 10.0, log: true };
        }
        Self { low: low / ROOM, high: high * ROOM, log: true }
    }

    /// Where a value is, from 0 to 1.
    pub fn place(&self, value: f64) -> f64 {
        let place = match self.log {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        place.clamp(0.0, 1.0)
    }

    pub fn ticks(&self) -> Vec<f64> {
        if !self.log {
            let step = step(self.high);
            let count = (self.high / step).round() as usize;
            return (0..=count).map(|number| number as f64 * step).collect();
        }
        let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let all =
            decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(decade)));
        let inside: Vec<_> = all.filter(|tick| (self.low..=self.high).contains(tick)).collect();
        match inside.len() as f64 > TICKS * 1.5 {
            true => inside.into_iter().filter(|tick| is_power(*tick)).collect(),
            false => inside,
        }
    }
}

fn is_power(tick: f64) -> bool {
    (tick.log10() - tick.log10().round()).abs() < 1e-9
}

/// One, two or five times a power of ten.
fn step(high: f64) -> f64 {
    let rough = high / TICKS;
    let power = 10_f64.powf(rough.log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * power >= rough * 0.999);
    digit.unwrap_or(10.0) * power
}

/// `0.5`, `200`, `10k`
pub fn shown(tick: f64) -> String {
    let (value, unit) = match tick.abs() {
        1e6.. => (tick / 1e6, "M"),
        1e4.. => (tick / 1e3, "k"),
        _ => (tick, ""),
    };
    // Without the noise of sums of tenths.
    format!("{}{unit}", (value * 1e6).round() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_values() {
        let axis = Axis::linear([3.0, 47.0].into_iter());
        assert_eq!(axis.ticks(), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!((axis.place(0.0), axis.place(25.0), axis.place(50.0)), (0.0, 0.5, 1.0));
    }

    #[test]
    fn on_a_logarithmic_axis_factors_are_distances() {
        let axis = Axis::log([1.0, 100.0, 0.0].into_iter());
        let [one, ten, hundred] = [1.0, 10.0, 100.0].map(|value| axis.place(value));
        assert!((ten - one - (hundred - ten)).abs() < 1e-9);
        assert!(axis.ticks().contains(&10.0));
        assert_eq!(axis.place(0.0), 0.0);
    }

    #[test]
    fn values_are_short() {
        assert_eq!([0.5, 200.0, 20_000.0, 3e6].map(shown), ["0.5", "200", "20k", "3M"]);
        assert_eq!(shown(0.1 + 0.2), "0.3");
    }
}
