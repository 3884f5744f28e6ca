//! What was last seen inside containers.
//! Holds: so many containers, or regions of such, and so many bytes of what is known of them.

use super::{Inside, Left};
use std::collections::VecDeque;
use std::sync::Arc;

const LOOKED_MAX: usize = 8;
const LOOKED_BYTES_MAX: usize = 16 << 20;

pub type Outcome = Arc<Result<Inside, Left>>;

/// By whatever names a region of a version.
pub struct Looked<K>(VecDeque<(K, Outcome)>);

impl<K> Default for Looked<K> {
    fn default() -> Looked<K> {
        Looked(VecDeque::new())
    }
}

impl<K: PartialEq> Looked<K> {
    pub fn find(&mut self, which: &K) -> Option<Outcome> {
        let at = self.0.iter().position(|(known, _)| known == which)?;
        let row = self.0.remove(at)?;
        let found = row.1.clone();
        self.0.push_front(row);
        Some(found)
    }

    pub fn keep(&mut self, which: K, outcome: Outcome) {
        self.0.push_front((which, outcome));
        let bytes = |outcome: &Outcome| outcome.as_ref().as_ref().map_or(0, Inside::bytes);
        while self.0.len() > 1 {
            let all: usize = self.0.iter().map(|(_, outcome)| bytes(outcome)).sum();
            if self.0.len() <= LOOKED_MAX && all <= LOOKED_BYTES_MAX {
                break;
            }
            self.0.pop_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept() {
        let mut looked = Looked::default();
        for number in 0..20 {
            looked.keep(number, Arc::new(Err(Left::Unknown)));
            looked.find(&0);
        }
        let kept: Vec<_> = (0..20).filter(|number| looked.find(number).is_some()).collect();
        assert_eq!(kept, [0, 13, 14, 15, 16, 17, 18, 19]);
    }
}
