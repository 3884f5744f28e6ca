//! Scenarios: devices and an origin in one process, on stores in memory and a clock that is
//! paused, through the traits that a link would carry.
#![allow(clippy::unwrap_used, reason = "a scenario that cannot go on is a failed test")]

mod admission;
mod attaching;
mod callbacks;
mod came_back;
mod checking;
mod collecting;
mod company;
mod conflicts;
mod contents;
mod crashes;
mod deltas;
mod full;
mod gathering;
mod ground;
mod missed;
mod party;
mod past;
mod records;
mod restart;
mod sessions;
mod settings;
mod settling;
mod taking;
mod tree;
mod tree_barred;
mod tree_faults;
mod tree_large;
mod tree_links;
mod tree_lists;
mod tree_odd;
mod tree_outgoing;
mod tree_recovery;
mod tree_saves;
mod tree_storm;
mod tree_tables;
mod tree_tidying;
mod wanted;
mod within;
