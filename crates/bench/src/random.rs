//! Chance that comes out the same for the same seed: SplitMix64.

/// Good enough to lose packets and to fill files; not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// From 0 up to `end`, without it; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(end)) >> 64) as u64
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        // The upper 53 bits are all that a float between 0 and 1 can tell apart.
        ((self.draw() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for eight in bytes.chunks_mut(8) {
            eight.copy_from_slice(&self.draw().to_le_bytes()[..eight.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let draw = |seed| {
            let mut bytes = [0; 21];
            Random::new(seed).fill(&mut bytes);
            bytes
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn chances_come_out_about_as_often_as_they_should() {
        let mut random = Random::new(1);
        let hits = (0..100_000).filter(|_| random.chance(0.02)).count();
        assert!((1_700..2_300).contains(&hits), "{hits}");
        assert!(!random.chance(0.0) && random.chance(1.0));
        assert!((0..1000).all(|_| random.below(3) < 3));
    }
}
