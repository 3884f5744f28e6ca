//! What keeps a link up, kept up itself.
//! Holds: whoever is above is told of the end of each session, and never waits for events that nobody
//! sends any more, also where a part of the link has a bug.

use super::{Shared, Standing};
use crate::transport::code;
use protocol::{Event, Unreachable};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// How long nothing is tried after a bug has ended a session: it may be there again at once.
const BROKEN_DOWN_WAIT: Duration = Duration::from_secs(1);

impl Shared {
    /// Keeps connected until the link is closed; after a bug, from the beginning.
    pub(super) async fn keep_on(self: Arc<Shared>, events: mpsc::Sender<Event>) {
        let begin = || {
            let (shared, events) = (self.clone(), events.clone());
            async move { shared.keep_connected(&events).await }
        };
        let broken_down = |bug: String| {
            let (shared, events) = (self.clone(), events.clone());
            async move {
                tracing::error!(%bug, "what keeps up the link has broken down and begins anew: please report this");
                shared.hang_up(Some(format!("what keeps up the link has broken down: {bug}")));
                if events.send(Event::Down(Unreachable::Lost)).await.is_ok() {
                    shared.config.world.clock.sleep(BROKEN_DOWN_WAIT).await;
                }
            }
        };
        kept_on(begin, broken_down).await;
    }

    async fn keep_connected(&self, events: &mpsc::Sender<Event>) {
        let mut closed = self.closed.subscribe();
        tokio::select! {
            _ = closed.wait_for(|closed| *closed) => {}
            () = self.keep_trying(events) => {}
        }
        self.hang_up(None);
    }

    /// What is still on its way is lost with this: the session first, then the socket.
    fn hang_up(&self, trouble: Option<String>) {
        if let Standing::Up(live) = self.standing() {
            live.wire.connection.close(code::DONE, b"");
            self.counters.ended(&live.wire.connection);
        }
        self.down(Unreachable::NoLink, trouble);
    }
}

/// Begins what comes to its end by itself, and again each time that it panics instead.
async fn kept_on<W, T>(begin: impl Fn() -> W, broken_down: impl Fn(String) -> T)
where
    W: Future<Output = ()> + Send + 'static,
    T: Future<Output = ()>,
{
    while let Err(ended) = tokio::spawn(begin()).await {
        let what = ended.to_string();
        // Else the runtime comes to its end.
        if !ended.is_panic() {
            return;
        }
        broken_down(what).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, Identity, RemoteConfig};
    use protocol::Upstream;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};
    use world::World;

    #[tokio::test]
    async fn what_breaks_down_is_told_and_begins_anew() {
        let begun = Arc::new(AtomicU32::new(0));
        let told = Mutex::new(Vec::new());
        let begin = || {
            let begun = begun.clone();
            async move {
                let before = begun.fetch_add(1, Ordering::Relaxed);
                assert!(before == 2, "bug {before}");
            }
        };
        let broken_down = |bug: String| {
            told.lock().unwrap().push(bug);
            std::future::ready(())
        };
        kept_on(begin, broken_down).await;
        assert_eq!(begun.load(Ordering::Relaxed), 3);
        let told = told.into_inner().unwrap();
        assert_eq!(told.len(), 2);
        assert!(told[0].contains("bug 0") && told[1].contains("bug 1"), "{told:?}");
    }

    #[tokio::test]
    async fn of_a_link_that_is_closed_there_are_no_more_events() {
        let address = Address {
            host: "127.0.0.1".to_owned(),
            port: 9,
            volume: "notes".to_owned(),
            key: Identity::generate().unwrap().fingerprint(),
            invitation: None,
        };
        let device = Identity::generate().unwrap();
        let config = RemoteConfig::new(address, device, "laptop".to_owned(), World::real());
        let remote = crate::Remote::connect(config).unwrap();
        remote.close();
        while let Some(event) = remote.event().await {
            assert!(matches!(event, Event::Down(_)), "{event:?}");
        }
    }
}
