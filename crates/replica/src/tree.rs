//! Keeps a volume in step with an ordinary directory of the server, both ways.
//! Holds: the volume's own tables stay what clients speak with. A change in the tree becomes an
//! update of a writer of its own; an update of the volume becomes a change in the tree, whole or
//! not at all. Both are made from the difference to what both sides last agreed on, which is
//! written down with them, so after a crash the difference is what is left to do.
//! Never: takes a tree that is not the one that was agreed on for one whose files are gone.
//!
//! ```text
//!   programs --> tree --events, or a look--> intake --updates--> volume --> clients
//!   programs <-- tree <--renames, exchanged-- outlet <--what differs-- volume <-- clients
//! ```

mod adopt;
mod barred;
mod commit;
mod contents;
mod dirt;
mod door;
mod doubt;
mod gather;
mod intake;
mod keeper;
mod large;
mod leave;
mod moves;
mod outlet;
mod patrol;
mod place;
mod recover;
mod renew;
mod rows;
mod scan;
mod stage;
mod told;
mod undone;
mod writing;

pub use door::TreeState;
pub(crate) use door::{Ask, Door};
pub use keeper::{Keeper, Stopper, TreeInfo};
pub(crate) use rows::purge_tree;
