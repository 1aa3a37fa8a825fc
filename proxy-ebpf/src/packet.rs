//! The packet path: who comes from outside, or past the sockets, is balanced packet by packet.
//!
//! Two stages. At tc ingress the destination is rewritten, at tc egress the source; in between the
//! kernel routes, filters and tracks the true conversation of client and backend. A packet that
//! meets several hooks (a bridge port, then the bridge) is rewritten by the first and unknown to the
//! rest, since what it is known by is its addresses as they are; `skb->mark` is left alone.

pub mod context;
mod echo;
mod egress;
mod error;
mod flow;
mod fragment;
mod ingress;
mod parse;
mod refusal;
mod snat;
mod translate;
mod work;

pub use egress::egress;
pub use ingress::ingress;

/// `TC_ACT_UNSPEC`, `TCX_NEXT`: as if the program were not there.
const PASS: i32 = -1;
/// `TC_ACT_SHOT`, `TCX_DROP`.
const DROP: i32 = 2;
