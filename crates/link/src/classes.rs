//! The lottery of the traffic classes: whose piece goes next.
//! Holds: of two classes that both have something to send, each gets its share in the long run,
//! however long the other goes on; a class that is alone gets everything.
//! From: partially connected operation, 5.1; lottery scheduling.

use protocol::Class;

/// Tickets of the classes, in the order of `Class::ALL`: 8 : 3 : 1, and for prefetch so few that
/// it has what is left, but never nothing.
const TICKETS: [u64; 4] = [128, 48, 16, 1];

/// Which classes have something to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassSet(u8);

impl ClassSet {
    pub const EMPTY: ClassSet = ClassSet(0);

    pub fn insert(&mut self, class: Class) {
        self.0 |= 1 << place(class);
    }

    pub fn contains(self, class: Class) -> bool {
        self.0 & (1 << place(class)) != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<Class> for ClassSet {
    fn from_iter<I: IntoIterator<Item = Class>>(classes: I) -> ClassSet {
        let mut set = ClassSet::EMPTY;
        classes.into_iter().for_each(|class| set.insert(class));
        set
    }
}

/// The place of a class in `Class::ALL`, and in every array by class.
pub(crate) fn place(class: Class) -> usize {
    match class {
        Class::Interactive => 0,
        Class::Demand => 1,
        Class::Replay => 2,
        Class::Prefetch => 3,
    }
}

/// Draws whose piece goes next.
#[derive(Clone, Copy, Debug)]
pub struct Lottery {
    tickets: [u64; 4],
}

impl Default for Lottery {
    fn default() -> Lottery {
        Lottery { tickets: TICKETS }
    }
}

impl Lottery {
    /// Tickets in the order of `Class::ALL`.
    pub(crate) fn with(tickets: [u64; 4]) -> Lottery {
        Lottery { tickets }
    }

    /// Which of the classes in `ready` is drawn by `ticket`, any number. None: none is ready.
    pub fn draw(&self, ready: ClassSet, ticket: u64) -> Option<Class> {
        let held =
            |class: Class| if ready.contains(class) { self.tickets[place(class)] } else { 0 };
        let all: u64 = Class::ALL.into_iter().map(held).sum();
        if all == 0 {
            return None;
        }
        let mut left = ticket % all;
        for class in Class::ALL {
            if left < held(class) {
                return Some(class);
            }
            left -= held(class);
        }
        unreachable!("the ticket is below the sum of all that are held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use world::Entropy;

    fn sets() -> impl Strategy<Value = ClassSet> {
        (0_u8..16).prop_map(ClassSet)
    }

    fn counts(ready: ClassSet, entropy: &Entropy, draws: usize) -> [usize; 4] {
        let lottery = Lottery::default();
        let mut counts = [0; 4];
        for _ in 0..draws {
            let class = lottery.draw(ready, entropy.number()).unwrap();
            counts[place(class)] += 1;
        }
        counts
    }

    #[test]
    fn the_places_are_those_of_the_list() {
        for (index, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!(place(class), index);
        }
    }

    #[test]
    fn names_demand_and_replay_share_eight_to_three_to_one() {
        let ready = Class::ALL[..3].iter().copied().collect();
        let counts = counts(ready, &Entropy::seeded(1), 120_000);
        for (count, share) in counts.into_iter().zip([80_000_usize, 30_000, 10_000, 0]) {
            assert!(count.abs_diff(share) < 1_500, "{counts:?}");
        }
    }

    #[test]
    fn prefetch_has_what_is_left_and_never_nothing() {
        let entropy = Entropy::seeded(2);
        let all = counts(Class::ALL.into_iter().collect(), &entropy, 100_000);
        assert!(all[3] > 100 && all[3] < 2_000, "{all:?}");
        let alone = counts([Class::Prefetch].into_iter().collect(), &entropy, 100);
        assert_eq!(alone, [0, 0, 0, 100]);
    }

    proptest! {
        // Each case draws thousands of times.
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn prop_only_those_who_are_ready_are_drawn(ready in sets(), ticket: u64) {
            match Lottery::default().draw(ready, ticket) {
                Some(class) => prop_assert!(ready.contains(class)),
                None => prop_assert!(ready.is_empty()),
            }
        }

        #[test]
        fn prop_nobody_starves(ready in sets(), seed: u64) {
            prop_assume!(!ready.is_empty());
            // The least share is 1 in 193: to miss it 10,000 times is beyond belief.
            let counts = counts(ready, &Entropy::seeded(seed), 10_000);
            for class in Class::ALL {
                prop_assert_eq!(counts[place(class)] > 0, ready.contains(class));
            }
        }

        #[test]
        fn prop_shares_are_those_of_the_tickets(ready in sets(), seed: u64) {
            prop_assume!(!ready.is_empty());
            let draws = 20_000;
            let counts = counts(ready, &Entropy::seeded(seed), draws);
            let held = |class| if ready.contains(class) { TICKETS[place(class)] } else { 0 };
            let all: u64 = Class::ALL.into_iter().map(held).sum();
            for class in Class::ALL {
                let share = held(class) as f64 / all as f64;
                let seen = counts[place(class)] as f64 / draws as f64;
                // Six standard deviations of 20,000 draws.
                let bound = 6.0 * (share * (1.0 - share) / draws as f64).sqrt();
                prop_assert!((seen - share).abs() <= bound + 1e-9, "{:?}: {} of {}", class, seen, share);
            }
        }
    }
}
