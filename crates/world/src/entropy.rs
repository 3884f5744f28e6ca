//! Chance.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{OsRng, RngCore, SeedableRng, TryRngCore};
use std::sync::{Arc, Mutex, PoisonError};

/// A source of chance that clones share.
#[derive(Clone, Debug)]
pub struct Entropy(Arc<Mutex<ChaCha12Rng>>);

impl Entropy {
    /// Seeded by the operating system.
    pub fn real() -> Entropy {
        let mut seed = [0; 32];
        OsRng.try_fill_bytes(&mut seed).expect("the kernel's random source does not fail");
        Entropy(Arc::new(Mutex::new(ChaCha12Rng::from_seed(seed))))
    }

    pub fn seeded(seed: u64) -> Entropy {
        Entropy(Arc::new(Mutex::new(ChaCha12Rng::seed_from_u64(seed))))
    }

    pub fn fill(&self, bytes: &mut [u8]) {
        self.with(|rng| rng.fill_bytes(bytes));
    }

    pub fn number(&self) -> u64 {
        self.with(RngCore::next_u64)
    }

    /// A number from 0 up to but not including `bound`, which must not be 0.
    pub fn below(&self, bound: u64) -> u64 {
        // The bias of the remainder is below 2^-32 for every bound that is used here.
        self.number() % bound.max(1)
    }

    fn with<T>(&self, draw: impl FnOnce(&mut ChaCha12Rng) -> T) -> T {
        draw(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
