//! The plans of pending stores that are kept, and those of them that somebody works with.
//! Holds: a plan that is lent is still known of: it is not made a second time, what is said of its
//! chunks meanwhile is not lost, and it does not come back for a store that is pending no more.

use super::Plan;
use super::ways::Ways;
use crate::files::Images;
use model::ChunkName;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What the plans that are kept may take in memory, about. Those beyond are made again from the
/// containers when it is their turn.
const PLANS_BYTES_MAX: usize = 32 << 20;

/// Plans of pending stores, by number of the update.
///
/// ```text
///   kept --lent--> lent --given back--> kept
///                   | overtaken, judged, made anew
///                   +--> (what is given back is dropped)
/// ```
#[derive(Default)]
pub(crate) struct Plans {
    plans: BTreeMap<u64, Plan>,
    lent: BTreeMap<u64, Lent>,
    /// Loans so far.
    loans: u64,
    bytes: usize,
    pub ways: Ways,
}

/// A plan that somebody works with, without holding up whoever looks at the others.
pub(crate) struct Loan {
    number: u64,
    loan: u64,
    pub plan: Plan,
}

/// What is known of a plan while it is lent.
struct Lent {
    loan: u64,
    images: Option<Arc<Images>>,
    /// Bytes of its longest chunk.
    longest: u64,
    arrived: BTreeSet<ChunkName>,
    missing: BTreeSet<ChunkName>,
}

impl Plans {
    /// Keeps a plan. If there are too many, those go whose turn is last; the first stays, so that
    /// the replay gets on.
    pub fn insert(&mut self, number: u64, plan: Plan) {
        self.remove(number);
        self.bytes += plan.bytes();
        self.plans.insert(number, plan);
        while self.bytes > PLANS_BYTES_MAX
            && self.plans.len() > 1
            && let Some((&last, _)) = self.plans.last_key_value()
        {
            self.take(last);
        }
    }

    /// It is needed no more, whoever has it.
    pub fn remove(&mut self, number: u64) {
        self.take(number);
        self.lent.remove(&number);
    }

    fn take(&mut self, number: u64) -> Option<Plan> {
        let plan = self.plans.remove(&number)?;
        self.bytes -= plan.bytes();
        Some(plan)
    }

    /// None: there is none, or somebody else has it.
    pub fn lend(&mut self, number: u64) -> Option<Loan> {
        let plan = self.take(number)?;
        self.loans += 1;
        let lent = Lent {
            loan: self.loans,
            images: plan.images.clone(),
            longest: longest(&plan),
            arrived: BTreeSet::new(),
            missing: BTreeSet::new(),
        };
        self.lent.insert(number, lent);
        Some(Loan { number, loan: self.loans, plan })
    }

    /// The plan comes back, if it is still wanted.
    pub fn give_back(&mut self, loan: Loan) {
        let Loan { number, loan, mut plan } = loan;
        if self.lent.get(&number).is_none_or(|lent| lent.loan != loan) {
            return;
        }
        let Some(lent) = self.lent.remove(&number) else { return };
        for name in &lent.arrived {
            plan.note_arrived(name);
        }
        for name in &lent.missing {
            plan.note_missing(name);
        }
        self.insert(number, plan);
    }

    /// None, too: it is lent.
    pub fn get(&self, number: u64) -> Option<&Plan> {
        self.plans.get(&number)
    }

    /// The same, for what does not change how much memory it takes.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Plan> {
        self.plans.get_mut(&number)
    }

    /// Whether there is one, whoever has it.
    pub fn has(&self, number: u64) -> bool {
        self.plans.contains_key(&number) || self.lent.contains_key(&number)
    }

    /// What lay under what was written over, as one knows that is kept or lent.
    pub fn images(&self, number: u64) -> Option<Arc<Images>> {
        let lent = || self.lent.get(&number).and_then(|lent| lent.images.clone());
        self.plans.get(&number).and_then(|plan| plan.images.clone()).or_else(lent)
    }

    /// The replica above has received a chunk. Says whether that is new.
    pub fn note_arrived(&mut self, number: u64, name: &ChunkName) -> bool {
        if let Some(lent) = self.lent.get_mut(&number) {
            lent.missing.remove(name);
            return lent.arrived.insert(*name);
        }
        self.plans.get_mut(&number).is_some_and(|plan| plan.note_arrived(name))
    }

    /// The replica above says that it lacks a chunk.
    pub fn note_missing(&mut self, number: u64, name: &ChunkName) {
        if let Some(lent) = self.lent.get_mut(&number) {
            lent.missing.insert(*name);
        } else if let Some(plan) = self.plans.get_mut(&number) {
            plan.note_missing(name);
        }
    }

    /// Bytes of the longest chunk of the updates up to this one.
    pub fn longest_upto(&self, number: u64) -> u64 {
        let kept = self.plans.range(..=number).map(|(_, plan)| longest(plan));
        let lent = self.lent.range(..=number).map(|(_, lent)| lent.longest);
        kept.chain(lent).max().unwrap_or(0)
    }

    /// The updates before this one are pending no more; with none, none is.
    pub fn forget_before(&mut self, oldest: Option<u64>) {
        let is_old = |first: u64| oldest.is_none_or(|oldest| first < oldest);
        while let Some((&first, _)) = self.plans.first_key_value()
            && is_old(first)
        {
            self.take(first);
        }
        while let Some((&first, _)) = self.lent.first_key_value()
            && is_old(first)
        {
            self.lent.remove(&first);
        }
        self.ways.forget_before(oldest);
    }

    pub fn clear(&mut self) {
        // Of an earlier loan nothing may be taken for a later one.
        *self = Plans { loans: self.loans, ..Plans::default() };
    }
}

fn longest(plan: &Plan) -> u64 {
    plan.data.values().map(|(_, length)| u64::from(*length)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::FileId;

    fn plan_of(recipe_bytes: usize) -> Plan {
        let recipe = BTreeMap::from([(NAME, vec![0; recipe_bytes])]);
        Plan { recipe, ..Plan::empty(FileId(1), 0) }
    }

    const NAME: ChunkName = ChunkName([7; 24]);

    fn plans_with(number: u64) -> Plans {
        let data = BTreeMap::from([(ChunkName([8; 24]), (0, 5000))]);
        let images = Some(Arc::new(Images::new(model::Stamp::default(), 9)));
        let mut plans = Plans::default();
        plans.insert(number, Plan { data, images, ..plan_of(10) });
        plans
    }

    #[test]
    fn of_too_many_plans_those_go_whose_turn_is_last() {
        let mut plans = Plans::default();
        for number in 1..=4 {
            plans.insert(number, plan_of(PLANS_BYTES_MAX / 3));
        }
        assert_eq!((plans.has(1), plans.has(2), plans.has(4)), (true, true, false));
        plans.insert(1, plan_of(2 * PLANS_BYTES_MAX));
        assert!(plans.has(1) && !plans.has(2), "the first is kept whatever it takes");
        plans.forget_before(Some(2));
        assert!(!plans.has(1));
        assert_eq!(plans.bytes, 0);
    }

    #[test]
    fn a_plan_that_is_lent_is_known_of() {
        let mut plans = plans_with(3);
        let loan = plans.lend(3).unwrap();
        assert!(plans.has(3) && plans.get(3).is_none() && plans.lend(3).is_none());
        assert_eq!((plans.longest_upto(2), plans.longest_upto(3)), (0, 5000));
        assert!(plans.images(3).is_some(), "whoever writes to the file again goes on with them");
        assert!(plans.note_arrived(3, &NAME) && !plans.note_arrived(3, &NAME));
        plans.give_back(loan);
        assert!(plans.get(3).unwrap().is_there(&NAME));
        let loan = plans.lend(3).unwrap();
        plans.note_missing(3, &NAME);
        plans.give_back(loan);
        assert!(!plans.get(3).unwrap().is_there(&NAME));
    }

    #[test]
    fn what_is_needed_no_more_does_not_come_back() {
        let goes: [fn(&mut Plans); 5] = [
            |plans| plans.remove(3),
            |plans| plans.forget_before(Some(4)),
            |plans| plans.forget_before(None),
            |plans| plans.clear(),
            |plans| {
                // Another update bears the number.
                plans.clear();
                plans.insert(3, plan_of(1));
                plans.lend(3).unwrap();
                plans.remove(3);
            },
        ];
        for goes in goes {
            let mut plans = plans_with(3);
            let loan = plans.lend(3).unwrap();
            goes(&mut plans);
            plans.give_back(loan);
            assert!(!plans.has(3));
            assert_eq!(plans.bytes, 0);
        }
    }

    #[test]
    fn a_plan_that_was_made_anew_is_not_replaced_by_the_one_that_was_lent() {
        let mut plans = plans_with(3);
        let loan = plans.lend(3).unwrap();
        plans.insert(3, plan_of(1));
        plans.give_back(loan);
        assert!(plans.get(3).unwrap().data.is_empty());
        let (loan, later) = (plans.lend(3).unwrap(), plan_of(2));
        plans.insert(3, later);
        let last = plans.lend(3).unwrap();
        plans.give_back(loan);
        assert!(plans.get(3).is_none(), "somebody else has it");
        plans.give_back(last);
        assert_eq!(plans.get(3).unwrap().recipe[&NAME].len(), 2);
    }
}
