//! Deltas that are of no use to whom they reach, as if the base had gone there, or were another one.

use super::Network;
use protocol::{Base, Delta, Portion, Request, Response, Service, Submit};

/// What is left out of messages, as by a replica above that loses what it has said it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    Deltas,
    Chunks,
}

/// No replica makes so many updates here.
const NEVER: u64 = 1 << 40;

impl<S: Service> Network<S> {
    fn is_spoiled(&self) -> bool {
        let one_in = self.state().spoiled_one_in;
        one_in.is_some_and(|one_in| self.inner.world.entropy.below(one_in) == 0)
    }

    pub(super) fn spoil_request(&self, request: &mut Request) {
        let lost = self.state().lost;
        if let (Request::Submit(Submit { deltas, .. }) | Request::Put { deltas, .. }, Some(_)) =
            (&mut *request, lost)
        {
            *deltas = None;
        }
        if lost == Some(Lost::Chunks) {
            match request {
                Request::Submit(submit) => submit.payload = None,
                Request::Put { payload, .. } => *payload = chunks::pack(&[]),
                _ => {}
            }
        }
        match request {
            Request::Submit(submit) => self.spoil_all(&mut submit.deltas),
            Request::Put { deltas, .. } => self.spoil_all(deltas),
            Request::Read { base, .. } | Request::Recipe { base, .. } => self.spoil_base(base),
            Request::Gather { files, .. } => {
                files.iter_mut().for_each(|wish| self.spoil_base(&mut wish.base));
            }
            _ => {}
        }
    }

    pub(super) fn spoil_response(&self, response: &mut Response) {
        let deltas: Vec<&mut Delta> = match response {
            Response::Delta(delta) => vec![delta],
            Response::Recipe(fetched) => fetched.delta.iter_mut().collect(),
            Response::Gathered(gathered) => {
                if let Some(sequel) = &mut gathered.sequel
                    && self.is_spoiled()
                {
                    sequel.check ^= 1;
                }
                let coded = gathered.portions.iter_mut().filter_map(|portion| match portion {
                    Portion::Delta { delta, .. } => Some(delta),
                    _ => None,
                });
                coded.collect()
            }
            _ => return,
        };
        for delta in deltas {
            if self.is_spoiled() {
                delta.check ^= 1;
            }
        }
    }

    fn spoil_all(&self, deltas: &mut Option<Vec<Delta>>) {
        for delta in deltas.iter_mut().flatten() {
            if self.is_spoiled() {
                self.state().spoiled += 1;
                delta.check ^= 1;
            }
        }
    }

    fn spoil_base(&self, base: &mut Option<Base>) {
        if let Some(base) = base
            && self.is_spoiled()
        {
            base.version.number += NEVER;
        }
    }
}
