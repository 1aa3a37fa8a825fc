//! Reading records, which may be in the map and change meanwhile.

use proxy_common::{FlowValue, Protocol};

use crate::address::{Endpoint, Words};

/// Copies a record of the map, by the word: as a whole the compiler would load it by the octet.
#[inline(always)]
pub fn copy(from: *const FlowValue, to: &mut FlowValue) {
    let (from, to) = (from.cast::<u64>(), (&raw mut *to).cast::<u64>());
    for i in 0..size_of::<FlowValue>() / size_of::<u64>() {
        // SAFETY: inside both, which are aligned to eight bytes and have no padding.
        unsafe { to.add(i).write(from.add(i).read_volatile()) };
    }
}

/// Reads an end out of a record, in the map or on the stack.
macro_rules! end {
    ($(#[$doc:meta])* $name:ident, $addr:ident, $port:ident) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(record: *const FlowValue) -> Endpoint {
            // SAFETY: a map value or our own, whose fields are aligned.
            unsafe {
                let at = (&raw const (*record).$addr).cast::<u32>();
                Endpoint {
                    addr: Words::v6([
                        at.read_volatile(),
                        at.add(1).read_volatile(),
                        at.add(2).read_volatile(),
                        at.add(3).read_volatile(),
                    ]),
                    port: (&raw const (*record).$port).read_volatile(),
                }
            }
        }
    };
}

end!(client, client, client_port);

end!(stack_client, client, stack_port);

end!(frontend, frontend, frontend_port);

end!(backend, backend_addr, backend_port);

end!(snat, snat, snat_port);

/// Transport protocol of a record.
#[inline(always)]
pub fn protocol(record: *const FlowValue) -> Protocol {
    // SAFETY: a map value or our own.
    let number = unsafe { (&raw const (*record).protocol).read_volatile() };
    if number == Protocol::Tcp as u8 {
        Protocol::Tcp
    } else {
        Protocol::Udp
    }
}
