//! Sending what is pending: a prefix of the log, in order, with the contents that are missing.
//! Holds: one batch is on its way at a time; a batch whose answer was lost is sent again as it
//! was, and the replica above knows it by its numbers; what leaves is on this machine's disk.
//! From: partially connected operation, section 5; LBFS, "Update protocol".

use crate::client::{Client, error_of};
use crate::mode;
use crate::pace::eager_bytes;
