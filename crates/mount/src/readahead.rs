//! How far the kernel reads ahead. It offers 128 KiB to every FUSE file system; each request is
//! a round trip, so longer ones read faster. Only root may ask for more.

use crate::table;
use std::io;
use std::path::Path;

/// As much as one request may bring.
const READ_AHEAD_KIB: &str = "1024";

/// Has the kernel read further ahead, where that is allowed.
pub(crate) fn widen(mountpoint: &Path) {
    let widened = table::read().and_then(|table| {
        let device = table::device_of(&table, mountpoint).ok_or(io::ErrorKind::NotFound)?;
        std::fs::write(format!("/sys/class/bdi/{device}/read_ahead_kb"), READ_AHEAD_KIB)
    });
    if let Err(error) = widened {
        tracing::debug!(%error, "the kernel reads ahead as far as it likes");
    }
}
