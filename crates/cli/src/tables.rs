//! The tables of a mount, and what is free in them.

use std::path::Path;
use store::Tables as _;
use store::embedded::{Database, Settings, Words};

/// Of less that is free in the tables nothing is made.
const GIVEN_BACK_BYTES_MIN: u64 = 16 << 20;

/// Much of the tables may be free since a time of more traffic. If that cannot be given back, it is
/// used again.
pub fn open(path: &Path) -> store::Result<Database> {
    let settings = Settings { words: words(), ..Settings::default() };
    let tables = Database::open_as(path, settings)?;
    match tables.give_back(GIVEN_BACK_BYTES_MIN) {
        Ok(0) => {}
        Ok(bytes) => tracing::info!(bytes, "the tables gave back room that was free in them"),
        Err(error) => tracing::warn!(%error, "what is free in the tables stays there"),
    }
    Ok(tables)
}

/// What is said of damaged tables.
fn words() -> Words {
    let advice = "do not remove it: what was not yet sent is known by it";
    Words { advice: advice.to_owned(), ..Words::default() }
}
