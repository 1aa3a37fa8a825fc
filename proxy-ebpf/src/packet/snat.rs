//! SNAT: an address and port of this node for packets whose replies would not come back otherwise.
//!
//! The interface by which the first packet leaves decides the address, as MASQUERADE does. The port
//! comes from a range that no local socket is given (`ip_local_reserved_ports`), so that an answer
//! to a flow is never taken for one to a socket.

use proxy_common::Counter;

use crate::{
    address::Words,
    maps::MASQ,
    packet::{flow, work::Work},
    report::count,
    settings,
};

/// Ports that are tried.
const TRIES: u32 = 16;
/// Of these, how many only if nobody has them; after that those of flows that have ended will do.
const UNUSED: u32 = 8;

/// Chooses the SNAT address and port of the flow in `record`, and reserves them. `false`: there are
/// none.
#[inline(never)]
pub fn choose(work: &mut Work, interface: u32) -> bool {
    let Work {
        ends, record, key, ..
    } = work;
    let Some(addr) = address(interface, ends.src.addr.is_v4()) else {
        count(Counter::SnatNoAddress);
        return false;
    };
    record.snat = addr.bytes();
    record.snat_port = first_port(record.client_port);
    for attempt in 0..TRIES {
        let is_mine = match key.reply_of(record).reserve(record) {
            Ok(()) => true,
            Err(false) => {
                count(Counter::FlowFull);
                return false;
            }
            Err(true) if attempt < UNUSED => false,
            Err(true) => {
                let is_mine =
                    flow::end_finished(key) && key.reply_of(record).reserve(record).is_ok();
                if is_mine {
                    count(Counter::SnatReused);
                }
                is_mine
            }
        };
        if is_mine {
            // Whole records are exchanged, so that nobody reads an address without its port.
            key.stack_of(record).replace(record);
            key.request_of(record).replace(record);
            ends.src.addr = addr;
            ends.src.port = record.snat_port;
            return true;
        }
        count(Counter::SnatRetried);
        record.snat_port = random_port();
    }
    count(Counter::SnatExhausted);
    false
}

/// One of the range at random.
#[inline(always)]
pub fn random_port() -> u16 {
    let (first, count) = settings::snat_ports();
    let offset = (u64::from(flow::random()) * u64::from(count)) >> 32;
    first.wrapping_add(offset as u16)
}

/// The client's own port, if it is in the range.
#[inline(always)]
fn first_port(client: u16) -> u16 {
    let (first, count) = settings::snat_ports();
    if client.wrapping_sub(first) < count {
        client
    } else {
        random_port()
    }
}

/// The address that an interface gives, network order.
#[inline(always)]
fn address(interface: u32, is_v4: bool) -> Option<Words> {
    let value = MASQ.get_ptr(&interface)?;
    // SAFETY: a map value. The agent replaces it as a whole; one that is read while its element
    // becomes another interface's is still an address of this node.
    let addr = unsafe {
        Words::read(if is_v4 {
            &raw const (*value).v4
        } else {
            &raw const (*value).v6
        })
    };
    (addr.words()[3] != 0).then_some(addr)
}
