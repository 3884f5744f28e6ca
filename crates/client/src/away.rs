//! Disconnected by wish: the link may be there, and nothing goes over it.
//! Holds: who stays away has taken leave, so that nobody waits for its lease, and counts nothing
//! as vouched for; who comes back attaches before anything else.

use crate::client::Client;
use crate::types::WantedMode;
use model::{FileId, View};
use protocol::{Mode, Upstream};
use store::Containers;
use volume::partial::Tree;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// The user wants nothing to go over the link. Who has nothing of the volume yet gets as much
    /// of it as a mount needs.
    pub(crate) fn wants_to_be_away(&self) -> bool {
        let wanted = self.connection().wanted;
        wanted == WantedMode::Fixed(Mode::Disconnected) && self.knows_the_root()
    }

    /// There is something to fall back to without a link.
    pub(crate) fn knows_the_root(&self) -> bool {
        let known = self.connection().volume_known;
        known
            && self.inner.tables.read().is_ok_and(|read| {
                // What cannot be read is told where it is needed.
                matches!(Tree::new(&*read, 0).node(FileId::ROOT), Ok(Some(_)))
            })
    }

    /// Leaves, or comes back, if that is what the user wants by now.
    pub(crate) async fn follow_wish(&self) {
        let away = self.wants_to_be_away();
        let (leaves, returns) = {
            let mut connection = self.connection();
            let leaves = away && connection.attached;
            let returns = !away && connection.left && connection.up;
            connection.left = (connection.left || leaves) && !returns;
            (leaves, returns)
        };
        if leaves {
            tracing::info!("the link is left, as was asked for");
            self.leave().await;
        } else if returns {
            self.up().await;
        }
    }
}
