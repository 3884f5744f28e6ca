//! A replica: serves volumes to those below it. So far it is the origin, with none above it.
//! Holds: an update is taken once, durably, before it is answered; what a client was shown it is
//! told of when it changes, for as long as its lease lasts; nothing that was stored is lost.
//! Never: opens a socket, reads the machine's clock or draws chance but from `world`, or believes
//! what a client says of chunks, recipes or numbers.

mod answer;
mod blocking;
mod callbacks;
mod catalog;
mod check;
mod crowded;
mod damage;
mod deltas;
mod error;
mod examine;
mod limits;
mod locks;
mod newcomers;
mod origin;
mod parts;
mod past;
mod reserved;
mod row;
mod session;
mod take;
mod tree;
mod upkeep;
mod volumes;
mod wanted;
mod weight;
mod within;

pub use blocking::Blocking;
pub use catalog::{Device, DeviceId, VolumeInfo};
pub use catalog::{are_of_an_origin, describe_row, has_had_volumes};
pub use check::{Checked, Problem, Repair, State};
pub use error::ReplicaError;
pub use limits::Limits;
pub use origin::Origin;
pub use session::OriginSession;
pub use take::{Claimed, Clash, Conflict};
pub use tree::{Keeper, Stopper, TreeInfo, TreeState};
pub use upkeep::{Amount, Freed, Wish};
