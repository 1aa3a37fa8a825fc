//! The ends of flows: what no packet has passed for long enough is taken out of the map.
//!
//! Programs never end a flow for its age, and nothing is evicted, so that a flow lives as long as it
//! is used, however full the map is. Of the two or three keys of a flow, the one of its requests
//! stands for all: it is looked at together with the others, and who takes it out takes back what
//! the flow counted for. Other keys only matter once that one is gone, or was lost.

use std::time::Duration;

use proxy_common::{
    FlowKey, FlowStage, FlowState, FlowValue, LoadValue, Protocol,
    map::{self},
};

use super::{
    Error, Pins, StartError,
    maps::{Origin, memory, table},
    memory::Memory,
    sys,
    table::Table,
};

/// Entries that are looked at without a pause.
const SLICE: usize = 1024;
/// How long a key may stand alone, while its flow is being made or ended.
const ALONE: Duration = Duration::from_secs(5);

/// How long a flow may rest in each state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// TCP that was not answered, or whose handshake the client did not complete.
    pub tcp_open: Duration,
    /// TCP that is established.
    pub tcp_established: Duration,
    /// TCP that one side has closed.
    pub tcp_half_closed: Duration,
    /// TCP that both sides have closed.
    pub tcp_closed: Duration,
    /// TCP that one side has reset.
    pub tcp_reset: Duration,
    /// Datagrams that were not answered.
    pub udp_open: Duration,
    /// Datagrams both ways.
    pub udp_established: Duration,
}

impl Default for Timeouts {
    /// Those of kube-proxy's configuration where it has one (`conntrack.tcpEstablishedTimeout`,
    /// `conntrack.tcpCloseWaitTimeout`), else those of the kernel's conntrack
    /// (net/netfilter/nf_conntrack_proto_tcp.c, nf_conntrack_proto_udp.c).
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            tcp_open: seconds(60),
            tcp_established: seconds(24 * 3600),
            tcp_half_closed: seconds(3600),
            tcp_closed: seconds(120),
            tcp_reset: seconds(10),
            udp_open: seconds(30),
            udp_established: seconds(120),
        }
    }
}

impl Timeouts {
    /// How long a flow like this may rest.
    fn of(&self, flow: &FlowValue) -> Duration {
        let is_tcp = flow.protocol == Protocol::Tcp as u8;
        match flow.state() {
            FlowState::Open if is_tcp => self.tcp_open,
            FlowState::Established if is_tcp => self.tcp_established,
            FlowState::HalfClosed => self.tcp_half_closed,
            FlowState::Closed => self.tcp_closed,
            FlowState::Reset => self.tcp_reset,
            FlowState::Open => self.udp_open,
            FlowState::Established => self.udp_established,
        }
    }
}

/// What a walk has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// Keys that were looked at.
    pub keys: usize,
    /// Flows that were ended.
    pub ended: usize,
    /// Keys that stood alone and were taken out, or put back where their flow needs them.
    pub mended: usize,
}

/// The map of flows, for the one who ends them.
pub struct Flows {
    flows: Table<FlowKey, FlowValue>,
    loads: Memory<LoadValue>,
    timeouts: Timeouts,
    cursor: sys::Cursor,
    slice: Vec<(FlowKey, FlowValue)>,
}

impl Flows {
    /// Opens the pinned maps, whose shapes have been checked.
    ///
    /// # Errors
    ///
    /// Why a map cannot be opened.
    pub fn open(pins: &Pins, timeouts: Timeouts) -> Result<Self, StartError> {
        let origin = &mut Origin::Pins(pins);
        Ok(Self {
            flows: table(origin, &map::FLOW)?,
            loads: memory(origin, &map::LOAD)?,
            timeouts,
            cursor: sys::Cursor::default(),
            slice: Vec::new(),
        })
    }

    /// Keys that the map has room for.
    pub fn room(&self) -> usize {
        self.flows.entries() as usize
    }

    /// Looks at the next slice of the map, as of `now` (`CLOCK_MONOTONIC`). Whether there is more of
    /// it.
    ///
    /// # Errors
    ///
    /// If a map cannot be read or written; the walk can go on.
    pub fn walk(&mut self, now: Duration, walked: &mut Walked) -> Result<bool, Error> {
        let mut slice = std::mem::take(&mut self.slice);
        slice.clear();
        let more = self.flows.some(&mut self.cursor, SLICE, &mut |key, value| {
            slice.push((key, value));
        });
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let mut result = more;
        walked.keys += slice.len();
        for (key, value) in &slice {
            if let Err(error) = self.look_at(*key, *value, now, walked) {
                result = Err(error);
            }
        }
        self.slice = slice;
        result
    }

    /// Gives memory back after a walk.
    pub fn rest(&mut self) {
        self.slice = Vec::new();
        self.loads.unmap();
    }

    fn look_at(
        &mut self,
        key: FlowKey,
        value: FlowValue,
        now: u64,
        walked: &mut Walked,
    ) -> Result<(), Error> {
        let age = |value: &FlowValue| Duration::from_nanos(now.saturating_sub(value.last_seen));
        if value.request_key() != Some(key) {
            if age(&value) > ALONE && self.is_alone(&key, &value)? {
                self.flows.delete(&key)?;
                walked.mended += 1;
            }
            return Ok(());
        }
        let Some(stack) = value.stack_key() else {
            return Ok(());
        };
        let mut whole = value;
        let has_stack = match self.flows.get(&stack)? {
            Some(other) if other.is(&value) => {
                whole.merge(&other);
                true
            }
            _ => false,
        };
        if let Some(reply) = whole.reply_key()
            && let Some(other) = self.flows.get(&reply)?
            && other.is(&value)
        {
            whole.merge(&other);
        }
        if age(&whole) > self.timeouts.of(&whole) {
            self.end(&key, &whole, has_stack)?;
            walked.ended += 1;
        } else if !has_stack && age(&whole) > ALONE && self.flows.insert_new(&stack, &whole)? {
            walked.mended += 1;
        }
        Ok(())
    }

    /// Whether the flow of a key other than that of requests is gone, or is another by now.
    fn is_alone(&self, key: &FlowKey, value: &FlowValue) -> Result<bool, Error> {
        let whole = match (key.stage, value.request_key(), value.stack_key()) {
            (FlowStage::Stack, Some(request), _) => self.flows.get(&request)?,
            (FlowStage::Wire, _, Some(stack)) => self
                .flows
                .get(&stack)?
                .filter(|other| other.reply_key() == Some(*key)),
            _ => None,
        };
        Ok(!whole.is_some_and(|whole| whole.is(value)))
    }

    fn end(&mut self, key: &FlowKey, flow: &FlowValue, has_stack: bool) -> Result<(), Error> {
        if has_stack && let Some(stack) = flow.stack_key() {
            self.flows.delete(&stack)?;
        }
        if let Some(reply) = flow.reply_key() {
            self.flows.delete(&reply)?;
        }
        if self.flows.take(key)? {
            self.count_down(flow.backend)?;
        }
        Ok(())
    }

    fn count_down(&mut self, backend: u32) -> Result<(), Error> {
        let index = LoadValue::index(backend);
        if self.loads.read(index)?.backend == backend {
            let offset = std::mem::offset_of!(LoadValue, connections);
            self.loads.add(index, offset, u32::MAX)?;
        }
        Ok(())
    }
}
