//! Delivers a session's notices, one after another.

use super::{Next, Place};
use crate::catalog::DeviceId;
use crate::volumes::Volume;
use protocol::{Downstream, Notice};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A `Downstream` of any kind.
pub(crate) trait Teller: Send + Sync {
    fn tell(&self, notice: Notice) -> Pin<Box<dyn Future<Output = bool> + Send + '_>>;
    fn rate(&self) -> Option<u64>;
    fn is_there(&self) -> bool;
}

impl<D: Downstream> Teller for D {
    fn tell(&self, notice: Notice) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(Downstream::tell(self, notice))
    }

    fn rate(&self) -> Option<u64> {
        Downstream::rate(self)
    }

    fn is_there(&self) -> bool {
        Downstream::is_there(self)
    }
}

/// Runs until the session is over, or its device has been removed.
pub(crate) async fn deliver(
    volume: Arc<Volume>,
    (place, device): (Place, DeviceId),
    teller: Arc<dyn Teller>,
) {
    loop {
        let (next, wake) = {
            let mut holders = volume.holders();
            if volume.has_turned_out(device) {
                // Nobody waits for it either.
                holders.give_up(&place);
                return;
            }
            let Some(holder) = holders.at(&place) else { return };
            let wake = holder.wake.clone();
            (holders.next(&place), wake)
        };
        match next {
            Next::Over => return,
            Next::Nothing => wake.notified().await,
            Next::Notice(notice) => {
                let (upto, alone) = (notice.upto, notice.alone);
                if !teller.tell(notice).await {
                    volume.holders().leave(&place);
                    return;
                }
                let mut holders = volume.holders();
                holders.acknowledge(&place, upto);
                if alone == Some(false) {
                    holders.acknowledge_company(&place);
                }
            }
        }
    }
}
