//! Every map in one table: name (which is also its pin's file name) and default size.

/// One map of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapSpec {
    /// Name of the map and of its pin; at most 15 bytes (BPF_OBJ_NAME_LEN, linux/bpf.h).
    pub name: &'static str,
    /// Default of max_entries; 0 where the kernel wants none.
    pub entries: u32,
    /// Whether the agent may create it with another size.
    pub resizable: bool,
    /// What it holds, as a sentence.
    pub help: &'static str,
}

macro_rules! maps {
    ($($constant:ident = $name:literal, $entries:expr, $resizable:literal, $help:literal;)*) => {
        $(#[doc = $help] pub const $constant: MapSpec = MapSpec {
            name: $name, entries: $entries, resizable: $resizable, help: $help,
        };)*

        /// All maps.
        pub const ALL: &[MapSpec] = &[$($constant),*];
    };
}

maps! {
    SETTING = "setting", 1, false, "The schema of the pins, and when an agent last wrote them.";
    FRONTEND = "frontend", 131_072, true, "Service address, port and protocol → service id.";
    SERVICE = "service", 131_072, false, "Service id modulo the size → its run of slots, windows and policies.";
    NAME = "name", 131_072, true, "Service id → names in the cluster.";
    SLOT = "slot", 524_288, true, "Slot → backend id and endpoint.";
    BACKEND = "backend", 524_288, true, "Backend id → endpoint.";
    LOAD = "load", 524_288, false, "Backend id modulo the size → connections that stand nowhere else.";
    AFFINITY = "affinity", 65_536, true, "Service id and client → backend id.";
    CONNECTION = "connection", 65_536, false, "Socket cookie modulo the size → its TCP connection.";
    SOCK = "sock", 0, false, "Socket → its translations.";
    PEER = "peer", 16_384, true, "Socket cookie and backend → service address, of busy unconnected UDP sockets.";
    FLOW = "flow", 262_144, true, "Tuple on the wire or between the hooks → translated flow.";
    FRAGMENT = "fragment", 8_192, true, "Fragmented packet → what became of its first fragment.";
    RANGE = "range", 65_536, true, "Service id and source prefix → allowed.";
    NODE_ADDR = "node_addr", 4_096, true, "Address of this node → what it answers.";
    MASQ = "masq", 1_024, true, "Interface index → SNAT addresses.";
    COUNTER = "counter", crate::counter::COUNTERS as u32, false, "Per-CPU counters, by index.";
    EVENT = "event", 65_536, false, "Ring buffer of refusals and drops, in bytes.";
}
