//! Ingress: the destination. A flow that exists comes before any frontend, so that a reply is never
//! taken for a request.

use proxy_common::{AffinityKey, Counter, EventKind, FlowState, Protocol};

use crate::{
    address::Endpoint,
    balance::{
        lookup::{self, Found, Side},
        select::{self, Client, Closed},
    },
    packet::{
        DROP, PASS,
        context::{Buffer, Device},
        echo, error,
        flow::{self, Direction, Flow},
        fragment,
        parse::{self, FIRST, LATER, Tuple},
        refusal,
        translate::rewrite,
        work::{Choice, Work, work},
    },
    report::{count, event},
};

/// Beside the verdicts: the packet is to be answered.
const REFUSE: i32 = -2;
/// It gets other ends.
const TRANSLATE: i32 = -3;

/// Runs for every packet that arrives on an interface of the node.
#[inline(always)]
pub fn ingress<D: Device>(buffer: Buffer) -> i32 {
    if D::HEADER != 0 && !buffer.is_for_host() {
        return PASS;
    }
    let Some(work) = work() else {
        return PASS;
    };
    if parse::parse::<D>(buffer, &mut work.packet).is_none() {
        if echo::answer::<D>(buffer) {
            count(Counter::PacketEchoed);
            return buffer.send_back();
        }
        return error::ingress::<D>(buffer, work);
    }
    if work.packet.part == LATER {
        return fragment::arriving::<D>(buffer, work);
    }
    let verdict = decide(work);
    // By way of memory, so that the verifier follows what comes next once, and not for each verdict.
    let at = &raw mut work.verdict;
    // SAFETY: our own memory.
    let verdict = unsafe {
        at.write_volatile(verdict);
        at.read_volatile()
    };
    if work.packet.part == FIRST {
        // Packets that are none of ours, where they could be: others must not wait for their first.
        let is_passed = verdict == PASS;
        if is_passed {
            work.ends.src = work.packet.tuple.src;
            work.ends.dst = work.packet.tuple.dst;
        }
        if !is_passed || lookup::is_ours(work.packet.tuple.dst.addr) {
            let is_sent = is_passed || verdict == TRANSLATE;
            fragment::arrives::<D>(buffer, work, is_sent);
        }
    }
    if verdict == REFUSE {
        return refusal::send::<D>(buffer, &work.packet);
    }
    if verdict != TRANSLATE {
        return verdict;
    }
    if rewrite::<D>(buffer, &work.packet, &work.ends) {
        PASS
    } else {
        count(Counter::PacketBroken);
        DROP
    }
}

/// What becomes of a packet, and its ends beyond this hook if it is translated.
#[inline(always)]
fn decide(work: &mut Work) -> i32 {
    if let Some(flow) = Flow::arriving(work) {
        if flow.direction == Direction::Reply || is_current(&flow, work) {
            flow.touch(&work.packet);
            return TRANSLATE;
        }
        flow.end(&mut work.key);
    } else if work.packet.is_tcp() && !work.packet.is_syn() {
        // In the middle of a connection that is not ours, or was somebody else's before we came.
        return PASS;
    }
    // Functions of their own, each, since the stack has no room for both.
    let verdict = choose(work);
    if work.choice.backend == 0 {
        return verdict;
    }
    if !flow::make(work) {
        count(Counter::FlowFull);
        return DROP;
    }
    TRANSLATE
}

/// Whether a flow is still the right one for a packet of its client.
#[inline(always)]
fn is_current(flow: &Flow, work: &mut Work) -> bool {
    let is_alive = || select::is_alive(flow.backend, flow.service);
    if !work.packet.is_tcp() {
        return is_alive();
    }
    if !work.packet.is_syn() {
        return true;
    }
    // The client starts anew. One that only repeats itself stays, unless nobody will ever answer.
    match flow.state(&mut work.key) {
        FlowState::Closed | FlowState::Reset => false,
        FlowState::Open => is_alive(),
        FlowState::Established | FlowState::HalfClosed => true,
    }
}

/// Chooses a backend for a packet without a flow; without one, what becomes of the packet.
#[inline(never)]
fn choose(work: &mut Work) -> i32 {
    work.choice.backend = 0;
    let Tuple { src, dst, protocol } = work.packet.tuple;
    let side = Side::Outside(src.addr);
    // Loopback addresses never mean this node to who is outside of it.
    let open = match lookup::find(dst, protocol, side, || false) {
        Found::Nothing => return PASS,
        Found::Open(open) => open,
        Found::Ranged | Found::Denied => {
            count(Counter::PacketDenied);
            return DROP;
        }
        Found::UnknownPort => return refuse(Counter::PacketUnknownPort, work, 0),
        Found::Closed(why, service) => return closed(why, work, service),
    };
    // The answer of a backend to a client whose port is a frontend's number: its flow is known by
    // what leaves. Of TCP only what opens a connection comes here.
    if protocol as u8 != Protocol::Tcp as u8
        && Flow::leaving(work).is_some_and(|flow| flow.direction == Direction::Reply)
    {
        return PASS;
    }
    let service = open.service();
    let backend = match open.choose(&Sender(src)) {
        Ok(backend) => backend,
        Err(why) => return closed(why, work, service),
    };
    let is_snat = !select::is_on_node(backend.id) || backend.at.addr.is(src.addr);
    work.ends.dst = backend.at;
    work.choice = Choice {
        service,
        backend: backend.id,
        snat: u32::from(is_snat),
    };
    PASS
}

/// A Service that has no backend for the client.
#[inline(always)]
fn closed(why: Closed, work: &Work, service: u32) -> i32 {
    match why {
        Closed::Refused => refuse(Counter::PacketRefused, work, service),
        Closed::Dropped => {
            count(Counter::PacketDropped);
            tell(EventKind::Dropped, work, service);
            DROP
        }
        Closed::Broken => {
            count(Counter::PacketBroken);
            DROP
        }
    }
}

/// Nobody is there. At an address of the node the kernel says so, since no local socket has the
/// port; elsewhere we do.
#[inline(always)]
fn refuse(counter: Counter, work: &Work, service: u32) -> i32 {
    count(counter);
    tell(EventKind::Refused, work, service);
    if lookup::answers_node_ports(work.packet.tuple.dst.addr, || false) {
        PASS
    } else {
        REFUSE
    }
}

#[inline(always)]
fn tell(kind: EventKind, work: &Work, service: u32) {
    let tuple = &work.packet.tuple;
    event(kind, &tuple.dst, tuple.protocol, service);
}

/// A client that is known by its address, and whose every flow is a new choice.
struct Sender(Endpoint);

impl Client for Sender {
    #[inline(always)]
    fn dice(&self) -> u32 {
        flow::random()
    }

    #[inline(always)]
    fn affinity(&self, service: u32) -> AffinityKey {
        AffinityKey::address(service, self.0.addr.bytes())
    }
}
