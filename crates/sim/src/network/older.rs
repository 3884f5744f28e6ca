//! A line of which one side is of an earlier version, which does not know of what is inside
//! containers, nor of updates out of their turn: it says so by saying nothing of it, and must be told nothing of it.

use super::{LineId, Network};
use chunks::delta::Codec;
use protocol::{Delta, Request, Response, Service, Submit};

/// What an earlier version does not know a codec by.
const UNKNOWN_CODEC: u8 = 0xff;

impl<S: Service> Network<S> {
    /// From its next session on, nobody at the ends of this line knows of the other that it
    /// assembles; or everybody does again.
    pub fn set_older(&self, line: LineId, older: bool) {
        self.state().lines[line].older = older;
    }

    fn is_older(&self, line: LineId) -> bool {
        self.state().lines[line].older
    }

    /// What the origin of an earlier version makes of a request.
    pub(super) fn age_request(&self, line: LineId, request: &mut Request) {
        if !self.is_older(line) {
            return;
        }
        match request {
            Request::Find { .. }
            | Request::Inside { .. }
            | Request::Read { inside: Some(_), .. } => {
                self.fault(format!("line {line}: an earlier version was asked what is inside"));
            }
            Request::Submit(Submit { ahead: Some(_), .. }) => {
                self.fault(format!("line {line}: an earlier version was sent what is out of turn"));
            }
            Request::Submit(Submit { deltas: Some(deltas), .. })
            | Request::Put { deltas: Some(deltas), .. } => {
                for delta in deltas.iter_mut().filter(|delta| is_assembled(delta)) {
                    self.fault(format!(
                        "line {line}: an earlier version was sent what is assembled"
                    ));
                    delta.codec = UNKNOWN_CODEC;
                }
            }
            _ => {}
        }
    }

    /// What of an answer is not said by an earlier version, or not understood.
    pub(super) fn age_response(&self, line: LineId, response: &mut Response) {
        if !self.is_older(line) {
            return;
        }
        match response {
            Response::Attached(attached) => {
                (attached.assembles, attached.takes_ahead) = (None, None);
                (attached.tells, attached.ahead, attached.takes_any_ahead) = (None, None, None);
            }
            Response::Delta(delta) if is_assembled(delta) => {
                self.fault(format!("line {line}: an earlier version was given what is assembled"));
            }
            _ => {}
        }
    }
}

fn is_assembled(delta: &Delta) -> bool {
    delta.codec == Codec::Assembled.number()
}
