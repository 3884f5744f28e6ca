//! What the seed of a machine says: the same seed says the same.

/// SplitMix64: enough to choose what a power cut leaves, and the same everywhere.
pub(super) struct Chance(pub u64);

impl Chance {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Answers yes with one likelihood throughout, drawn from none to all of eight.
    pub fn some_part(&mut self) -> impl FnMut() -> bool + '_ {
        let in_eight = self.draw() % 9;
        move || self.draw() % 8 < in_eight
    }
}
