//! Egress: the source.

use proxy_common::Counter;

use crate::{
    packet::{
        DROP, PASS,
        context::{Buffer, Device},
        error,
        flow::Flow,
        fragment,
        parse::{self, LATER},
        translate::rewrite,
        work::work,
    },
    report::count,
};

/// Runs for every packet that leaves by an interface of the node.
#[inline(always)]
pub fn egress<D: Device>(buffer: Buffer) -> i32 {
    let Some(work) = work() else {
        return PASS;
    };
    if parse::parse::<D>(buffer, &mut work.packet).is_none() {
        return error::egress::<D>(buffer, work);
    }
    if work.packet.part == LATER {
        return fragment::leaving::<D>(buffer, work);
    }
    let Some(flow) = Flow::leaving(work) else {
        return PASS;
    };
    flow.touch(&work.packet);
    if flow.wants_snat && !flow.choose_snat(work, buffer.interface()) {
        return DROP;
    }
    fragment::leaves(work);
    let (tuple, ends) = (&work.packet.tuple, &work.ends);
    if ends.src.is(tuple.src) && ends.dst.is(tuple.dst) {
        return PASS;
    }
    if rewrite::<D>(buffer, &work.packet, ends) {
        PASS
    } else {
        count(Counter::PacketBroken);
        DROP
    }
}
