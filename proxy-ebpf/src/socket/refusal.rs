//! Saying no: the error that the program sees, the counter, and the event.

use proxy_common::{Counter, EventKind, Protocol};

use crate::{
    address::Endpoint,
    balance::select::Closed,
    report::{count, event},
    socket::context::refuse,
};

// Numbers of include/uapi/asm-generic/errno.h.
const ENOBUFS: i32 = 105;
const ECONNREFUSED: i32 = 111;
const EHOSTUNREACH: i32 = 113;

/// A Service that has no backend for the client. Sockets learn at once that nobody is there
/// (design: "refused"); a policy that forbids those who are there, and on the wire means silence, is
/// an error of another kind.
#[inline(always)]
pub fn closed(why: Closed, service: u32, destination: Endpoint, protocol: Protocol) -> i32 {
    match why {
        Closed::Refused => {
            count(Counter::SocketRefused);
            event(EventKind::Refused, &destination, protocol, service);
            refuse(ECONNREFUSED)
        }
        Closed::Dropped => {
            count(Counter::SocketDropped);
            event(EventKind::Dropped, &destination, protocol, service);
            refuse(EHOSTUNREACH)
        }
        Closed::Broken => {
            count(Counter::SocketBroken);
            event(EventKind::Refused, &destination, protocol, service);
            refuse(ECONNREFUSED)
        }
    }
}

/// A port that a ClusterIP does not have, which would otherwise leave by the default route.
#[inline(always)]
pub fn unknown_port(destination: Endpoint, protocol: Protocol) -> i32 {
    count(Counter::SocketUnknownPort);
    event(EventKind::Refused, &destination, protocol, 0);
    refuse(ECONNREFUSED)
}

/// No memory for what the socket would have to remember.
#[inline(always)]
pub fn no_memory() -> i32 {
    count(Counter::StorageFailed);
    refuse(ENOBUFS)
}
