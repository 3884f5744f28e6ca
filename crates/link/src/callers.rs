//! Callers that are being greeted: what a listener does with the next one.
//! Holds: when many are being greeted, those of one address leave room for those of others.

use crate::Limits;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// When many are being greeted, the callers of one address may be one in so many.
const SHARE_ONE_IN: usize = 4;
/// Of an IPv6 address, what is one place. Whoever has one has the rest.
const PLACE_BITS: u32 = 64;

/// What to do with a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Knock {
    Greet,
    /// Many are being greeted: let it prove its address first.
    ProveAddress,
    Refuse,
}

/// `of_place`: how many of them are from where this one is.
fn knock(greeting: usize, of_place: usize, proved: bool, limits: &Limits) -> Knock {
    let most = limits.handshakes_max;
    if greeting >= most {
        Knock::Refuse
    } else if greeting < most / 2 {
        Knock::Greet
    } else if !proved {
        Knock::ProveAddress
    } else if of_place >= most / SHARE_ONE_IN {
        Knock::Refuse
    } else {
        Knock::Greet
    }
}

/// How many are being greeted, by where they are.
#[derive(Debug, Default)]
pub(crate) struct Callers(Mutex<HashMap<IpAddr, usize>>);

impl Callers {
    fn counts(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn knock(&self, address: IpAddr, proved: bool, limits: &Limits) -> Knock {
        let counts = self.counts();
        let of_place = counts.get(&place(address)).copied().unwrap_or(0);
        knock(counts.values().sum(), of_place, proved, limits)
    }

    pub fn begin(&self, address: IpAddr) {
        *self.counts().entry(place(address)).or_insert(0) += 1;
    }

    pub fn end(&self, address: IpAddr) {
        let mut counts = self.counts();
        if let Some(count) = counts.get_mut(&place(address)) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&place(address));
            }
        }
    }
}

fn place(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() >> PLACE_BITS << PLACE_BITS).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits { handshakes_max: 12, ..Limits::default() }
    }

    #[test]
    fn when_many_knock_they_prove_their_address_and_then_are_refused() {
        assert_eq!(knock(0, 0, false, &limits()), Knock::Greet);
        assert_eq!(knock(6, 0, false, &limits()), Knock::ProveAddress);
        assert_eq!(knock(11, 0, true, &limits()), Knock::Greet);
        assert_eq!(knock(12, 0, true, &limits()), Knock::Refuse);
    }

    #[test]
    fn those_of_one_address_leave_room_for_others() {
        let callers = Callers::default();
        let flood = |number: u16| IpAddr::from([0x2001, 0xdb8, 0, 7, 0, 0, 0, number]);
        for number in 0..30 {
            if callers.knock(flood(number), true, &limits()) == Knock::Greet {
                callers.begin(flood(number));
            }
        }
        let other = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(callers.knock(flood(1), true, &limits()), Knock::Refuse);
        assert_eq!(callers.knock(other, true, &limits()), Knock::Greet);
        (0..6).for_each(|number| callers.end(flood(number)));
        assert!(callers.counts().is_empty(), "half were greeted");
        assert_eq!(callers.knock(flood(1), false, &limits()), Knock::Greet);
    }
}
