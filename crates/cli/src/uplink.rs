//! The link of a mount, in the hands of both the client that uses it and the daemon that hurries
//! it.

use crate::limits::Limits;
use link::{Regulation, Remote, RemoteConfig};
use protocol::{Class, Event, LinkQuality, Request, Response, Traffic, Unreachable, Upstream};
use std::sync::Arc;

#[derive(Clone)]
pub struct Uplink(Arc<Remote>);

impl Uplink {
    pub fn connect(config: RemoteConfig) -> Result<Uplink, link::Error> {
        Ok(Uplink(Arc::new(Remote::connect(config)?)))
    }

    /// Tries now, also if the server has turned this device away.
    pub fn nudge(&self) {
        self.0.nudge();
    }

    /// How much of the link may be used from now on.
    pub fn regulate(&self, limits: Limits) {
        self.0.regulate(limits.upon(self.0.regulation()));
    }

    pub fn regulation(&self) -> Regulation {
        self.0.regulation()
    }

    /// Why there is no session, in words for the user.
    pub fn trouble(&self) -> Option<String> {
        self.0.trouble()
    }

    /// Ends the session; nothing is asked any more.
    pub fn close(&self) {
        self.0.close();
    }
}

impl Upstream for Uplink {
    fn ask(
        &self,
        class: Class,
        request: Request,
    ) -> impl Future<Output = Result<Response, Unreachable>> + Send {
        self.0.ask(class, request)
    }

    fn event(&self) -> impl Future<Output = Option<Event>> + Send {
        self.0.event()
    }

    fn quality(&self) -> LinkQuality {
        self.0.quality()
    }

    fn traffic(&self) -> Traffic {
        self.0.traffic()
    }

    fn look(&self) {
        self.0.look();
    }
}
