//! Counters: indices of the per-CPU `counter` array.

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $index:literal, $name:literal, $help:literal;)*) => {
        /// One counter. Its number is its index in the `counter` map, a per-CPU array of `u64`.
        #[repr(u32)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Counter { $(#[doc = $help] $variant = $index,)* }

        impl Counter {
            /// All counters, by index.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Name in `status`, metrics and documentation.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What is counted, as a sentence.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help,)* }
            }
        }
    };
}

counters! {
    SocketTranslated = 0, "socket_translated", "Sockets that were given a backend.";
    SocketRefused = 1, "socket_refused", "Sockets refused since a Service has no endpoint anywhere.";
    SocketDropped = 2, "socket_dropped", "Sockets failed since policy Local has no endpoint here.";
    SocketUnknownPort = 3, "socket_unknown_port", "Sockets refused at a port that a ClusterIP does not have.";
    SocketLeft = 4, "socket_left", "Sockets left to the packet path since the address has source ranges.";
    SocketRetried = 5, "socket_retried", "Choices made again since the backend had just gone.";
    SocketBroken = 6, "socket_broken", "Sockets refused since the maps contradict themselves; should stay 0.";
    PortGuarded = 7, "port_guarded", "Binds refused since the port is a NodePort.";
    StorageFailed = 8, "storage_failed", "Sockets refused since socket storage could not be had (out of memory).";
    LoadUncounted = 9, "load_uncounted", "Connections not counted since the load map is full.";
    FlowMade = 10, "flow_made", "Flows of the packet path that were made.";
    FlowFull = 11, "flow_full", "Packets dropped since the flow map has no room for a new flow.";
    FlowCollided = 12, "flow_collided", "Flows whose client has another flow from the same port to the same backend.";
    SnatRetried = 13, "snat_retried", "SNAT ports tried that were taken.";
    SnatReused = 14, "snat_reused", "SNAT ports taken from flows that had ended.";
    SnatExhausted = 15, "snat_exhausted", "Packets dropped since no SNAT port was free.";
    SnatNoAddress = 16, "snat_no_address", "Packets dropped since the interface has no address for SNAT.";
    PacketRefused = 17, "packet_refused", "Packets refused since a Service has no endpoint anywhere.";
    PacketDropped = 18, "packet_dropped", "Packets dropped since policy Local has no endpoint here.";
    PacketDenied = 19, "packet_denied", "Packets dropped since their source is in no source range.";
    PacketUnknownPort = 20, "packet_unknown_port", "Packets refused at a port that a ClusterIP does not have.";
    PacketBroken = 21, "packet_broken", "Packets dropped since maps or packet could not be used; should stay 0.";
    RefusalLimited = 22, "refusal_limited", "Refused packets without an answer, since there were too many.";
    PacketEchoed = 23, "packet_echoed", "Pings of Service addresses that were answered.";
    FragmentHeld = 24, "fragment_held", "Fragments held since they came before the first of their packet.";
    FragmentLost = 25, "fragment_lost", "Fragments dropped since they could not be held: too long, or too many of one packet.";
}

/// Number of counters: entries of the map.
pub const COUNTERS: usize = Counter::ALL.len();
