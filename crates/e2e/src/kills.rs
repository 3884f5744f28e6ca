//! How often tests kill what they test.

const KILLS: &str = "FARFS_E2E_KILLS";

/// `quick` times, or as often as the environment says.
pub fn kills(quick: u64) -> u64 {
    std::env::var(KILLS).ok().and_then(|kills| kills.parse().ok()).unwrap_or(quick)
}
