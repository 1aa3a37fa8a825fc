//! Entries of maps as fields with names: bytes in, text or JSON out. Pure.
//!
//! Bytes that are no value of the contract are shown as such, so that a dump of damaged maps shows
//! the damage.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use proxy_common::{
    Address, AffinityKey, AffinityScope, AffinityValue, BackendValue, ConnectionValue, FlowKey,
    FlowStage, FlowState, FlowValue, FragmentKey, FragmentValue, FrontendKey, FrontendValue,
    LoadValue, MasqValue, NameValue, NodeAddrKey, NodeAddrValue, PeerKey, PeerValue, RangeKey,
    ServiceValue, SlotValue, addr, map,
};
use serde::{Serialize, Serializer, ser::SerializeMap as _};
use zerocopy::{Immutable, KnownLayout, TryFromBytes};

/// One entry of a map: fields in order. Its text form is `name=value name=value`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record(pub Vec<(&'static str, Field)>);

/// One value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// A number.
    Number(i128),
    /// A text without blanks; may be empty.
    Text(String),
    /// Names of the flags that are set.
    Flags(Vec<&'static str>),
    /// Nothing.
    None,
}

impl Record {
    /// The entry of the map with that name; `None` if its bytes are none of that map.
    pub(super) fn decode(name: &str, key: &[u8], value: &[u8]) -> Option<Self> {
        if name == map::FRONTEND.name {
            frontend(read(key)?, read(value)?)
        } else if name == map::NAME.name {
            names(read(key)?, read(value)?)
        } else if name == map::BACKEND.name {
            backend(read(key)?, read(value)?)
        } else if name == map::AFFINITY.name {
            affinity(read(key)?, read(value)?)
        } else if name == map::PEER.name {
            peer(read(key)?, read(value)?)
        } else if name == map::FLOW.name {
            flow(read(key)?, read(value)?)
        } else if name == map::FRAGMENT.name {
            fragment(read(key)?, read(value)?)
        } else if name == map::NODE_ADDR.name {
            node_addr(read(key)?, read(value)?)
        } else if name == map::MASQ.name {
            masq(read(key)?, read(value)?)
        } else {
            return None;
        }
        .into()
    }

    /// An entry that could not be decoded, as bytes.
    pub(super) fn raw(key: &[u8], value: &[u8]) -> Self {
        let hex = |bytes: &[u8]| {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            Field::Text(format!("0x{digits}"))
        };
        Self(vec![("rawKey", hex(key)), ("rawValue", hex(value))])
    }

    /// An element of the `slot` array.
    pub(super) fn slot(index: u32, value: SlotValue) -> Self {
        Self(vec![
            ("slot", index.into()),
            ("service", value.service.into()),
            ("backend", value.backend.into()),
            ("address", value.addr.into()),
            ("port", value.port.into()),
        ])
    }

    /// An element of the `service` array, with the record that holds.
    pub(super) fn service(_: u32, value: ServiceValue) -> Self {
        let record = value.records[ServiceValue::latch(value.sequence)];
        Self(vec![
            ("service", value.id.into()),
            ("sequence", value.sequence.into()),
            ("base", record.base.into()),
            ("localOffset", record.local.offset.into()),
            ("localCount", record.local.count.into()),
            ("clusterOffset", record.cluster.offset.into()),
            ("clusterCount", record.cluster.count.into()),
            ("affinitySeconds", record.affinity_seconds.into()),
            ("scheduler", record.scheduler.name().into()),
            ("hasAny", record.has_any.into()),
        ])
    }

    /// An element of the `load` array.
    pub(super) fn load(_: u32, value: LoadValue) -> Self {
        Self(vec![
            ("backend", value.backend.into()),
            ("connections", value.connections.into()),
        ])
    }

    /// An element of the `connection` array.
    pub(super) fn connection(_: u32, value: ConnectionValue) -> Self {
        let PeerValue {
            vip,
            addr,
            vip_port,
            port,
            service,
            backend,
        } = value.connected;
        Self(vec![
            ("cookie", value.cookie.into()),
            ("vip", vip.into()),
            ("vipPort", vip_port.into()),
            ("address", addr.into()),
            ("port", port.into()),
            ("service", service.into()),
            ("backend", backend.into()),
        ])
    }

    /// An entry of the `range` trie.
    pub(super) fn range(bits: u32, key: RangeKey) -> Self {
        let source = addr::to_ip(&key.source);
        let family_bits = if source.is_ipv4() { 96 } else { 0 };
        let source = format!("{source}/{}", bits.saturating_sub(32 + family_bits));
        Self(vec![
            ("service", u32::from_be_bytes(key.service_be).into()),
            ("source", Field::Text(source)),
        ])
    }
}

fn read<T: TryFromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Option<T> {
    T::try_read_from_bytes(bytes).ok()
}

fn frontend(key: FrontendKey, value: FrontendValue) -> Record {
    let flags = [
        (FrontendValue::SOURCE_RANGES, "source-ranges"),
        (FrontendValue::LOCAL, "local"),
    ];
    Record(vec![
        ("address", key.addr.into()),
        ("port", key.port.into()),
        ("protocol", key.protocol.name().into()),
        ("service", value.service.into()),
        ("kind", value.kind.name().into()),
        ("flags", set_flags(value.flags.into(), &flags)),
    ])
}

fn names(key: u32, value: NameValue) -> Record {
    Record(vec![
        ("service", key.into()),
        ("namespace", NameValue::text(&value.namespace).into()),
        ("name", NameValue::text(&value.name).into()),
        ("port", NameValue::text(&value.port).into()),
        ("family", value.family.into()),
        ("protocol", protocol(value.protocol)),
    ])
}

fn backend(key: u32, value: BackendValue) -> Record {
    let flags = [
        (BackendValue::IN_LOCAL, "in-local"),
        (BackendValue::IN_CLUSTER, "in-cluster"),
        (BackendValue::ON_NODE, "on-node"),
    ];
    Record(vec![
        ("backend", key.into()),
        ("id", value.id.into()),
        ("generation", value.generation.into()),
        ("service", value.service.into()),
        ("address", value.addr.into()),
        ("port", value.port.into()),
        ("protocol", value.protocol.name().into()),
        ("weight", value.weight.into()),
        ("state", value.state.name().into()),
        ("flags", set_flags(value.flags.into(), &flags)),
    ])
}

fn affinity(key: AffinityKey, value: AffinityValue) -> Record {
    let (scope, client) = match key.scope {
        AffinityScope::Address => ("address", key.client.into()),
        AffinityScope::Namespace => {
            let [.., a, b, c, d, e, f, g, h] = key.client;
            let cookie = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
            ("namespace", cookie.into())
        }
    };
    Record(vec![
        ("service", key.service.into()),
        ("scope", scope.into()),
        ("client", client),
        ("backend", value.backend.into()),
        ("lastUsedNs", value.last_used.into()),
    ])
}

fn peer(key: PeerKey, value: PeerValue) -> Record {
    Record(vec![
        ("cookie", key.cookie.into()),
        ("address", key.addr.into()),
        ("port", key.port.into()),
        ("serviceAddress", value.vip.into()),
        ("servicePort", value.vip_port.into()),
        ("service", value.service.into()),
        ("backend", value.backend.into()),
    ])
}

fn flow(key: FlowKey, value: FlowValue) -> Record {
    let state = match value.state() {
        FlowState::Open => "open",
        FlowState::Established => "established",
        FlowState::HalfClosed => "half-closed",
        FlowState::Closed => "closed",
        FlowState::Reset => "reset",
    };
    let snat = match value.snat_port {
        0 => Field::None,
        port => end(value.snat, port),
    };
    Record(vec![
        ("stage", stage(key.stage)),
        ("source", end(key.src, key.src_port)),
        ("destination", end(key.dst, key.dst_port)),
        ("protocol", key.protocol.name().into()),
        ("client", end(value.client, value.client_port)),
        ("frontend", end(value.frontend, value.frontend_port)),
        ("endpoint", end(value.backend_addr, value.backend_port)),
        ("snat", snat),
        ("stackPort", value.stack_port.into()),
        ("service", value.service.into()),
        ("backend", value.backend.into()),
        ("state", state.into()),
        ("lastSeenNs", value.last_seen.into()),
    ])
}

fn fragment(key: FragmentKey, value: FragmentValue) -> Record {
    Record(vec![
        ("stage", stage(key.stage)),
        ("source", key.src.into()),
        ("destination", key.dst.into()),
        ("id", key.id.into()),
        ("protocol", protocol(key.protocol)),
        ("fate", FragmentValue::fate_name(value.fate).into()),
        ("newSource", value.src.into()),
        ("newDestination", value.dst.into()),
        ("timeNs", value.time.into()),
    ])
}

fn stage(stage: FlowStage) -> Field {
    match stage {
        FlowStage::Wire => "wire".into(),
        FlowStage::Stack => "stack".into(),
    }
}

fn node_addr(key: NodeAddrKey, value: NodeAddrValue) -> Record {
    let flags = [
        (NodeAddrValue::NODE_PORT, "node-port"),
        (NodeAddrValue::LOOPBACK, "loopback"),
    ];
    Record(vec![
        ("address", key.addr.into()),
        ("flags", set_flags(value.flags, &flags)),
    ])
}

fn masq(key: u32, value: MasqValue) -> Record {
    let some = |address: Address| match address {
        proxy_common::addr::V6_ANY => Field::None,
        address => address.into(),
    };
    Record(vec![
        ("interface", key.into()),
        ("v4", some(value.v4)),
        ("v6", some(value.v6)),
    ])
}

fn end(address: Address, port: u16) -> Field {
    Field::Text(SocketAddr::new(addr::to_ip(&address), port).to_string())
}

fn protocol(number: u8) -> Field {
    match proxy_common::Protocol::from_number(number.into()) {
        Some(protocol) => protocol.name().into(),
        None => number.into(),
    }
}

fn set_flags<T: Copy + Into<u32>>(value: u32, names: &[(T, &'static str)]) -> Field {
    let set = names.iter().filter(|(bit, _)| value & (*bit).into() != 0);
    Field::Flags(set.map(|(_, name)| *name).collect())
}

macro_rules! numbers {
    ($($kind:ty),*) => {$(
        impl From<$kind> for Field {
            fn from(number: $kind) -> Self {
                Self::Number(number.into())
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64, i32);

impl From<&str> for Field {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Address> for Field {
    fn from(address: Address) -> Self {
        let ip: IpAddr = addr::to_ip(&address);
        Self::Text(ip.to_string())
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, field)) in self.0.iter().enumerate() {
            let blank = if index == 0 { "" } else { " " };
            write!(f, "{blank}{name}={field}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) if text.is_empty() => f.write_str("\"\""),
            Self::Text(text) => f.write_str(text),
            Self::Flags(flags) if flags.is_empty() => f.write_str("-"),
            Self::Flags(flags) => f.write_str(&flags.join(",")),
            Self::None => f.write_str("-"),
        }
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, field) in &self.0 {
            map.serialize_entry(name, field)?;
        }
        map.end()
    }
}

impl Serialize for Field {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => match u64::try_from(*number) {
                Ok(number) => serializer.serialize_u64(number),
                Err(_) => serializer.serialize_i64(i64::try_from(*number).unwrap_or(i64::MIN)),
            },
            Self::Text(text) => serializer.serialize_str(text),
            Self::Flags(flags) => flags.serialize(serializer),
            Self::None => serializer.serialize_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proxy_common::{FrontendKind, Protocol};
    use zerocopy::IntoBytes as _;

    use super::*;

    fn text(name: &str, key: &[u8], value: &[u8]) -> String {
        Record::decode(name, key, value).unwrap().to_string()
    }

    #[test]
    fn a_frontend_is_shown_by_address_port_and_kind() {
        let key = FrontendKey::new(addr::v4_mapped([10, 96, 0, 1]), 443, Protocol::Tcp);
        let value = FrontendValue {
            service: 7,
            kind: FrontendKind::Balancer,
            flags: FrontendValue::LOCAL | FrontendValue::SOURCE_RANGES,
            reserved: 0,
        };
        assert_eq!(
            text("frontend", key.as_bytes(), value.as_bytes()),
            "address=10.96.0.1 port=443 protocol=TCP service=7 kind=LoadBalancer flags=source-ranges,local"
        );
        let record = Record::decode("frontend", key.as_bytes(), value.as_bytes());
        assert_eq!(
            serde_json::to_string(&record).unwrap(),
            r#"{"address":"10.96.0.1","port":443,"protocol":"TCP","service":7,"kind":"LoadBalancer","flags":["source-ranges","local"]}"#
        );
    }

    #[test]
    fn connections_below_zero_stay_below_zero() {
        let value = LoadValue {
            backend: 3,
            connections: -1,
        };
        let record = Record::load(3, value);
        assert_eq!(
            serde_json::to_string(&record).unwrap(),
            r#"{"backend":3,"connections":-1}"#
        );
    }

    #[test]
    fn a_client_is_shown_by_its_namespace_or_its_address() {
        let value = AffinityValue {
            last_used: 5,
            backend: 2,
            reserved: 0,
        };
        assert_eq!(
            text(
                "affinity",
                AffinityKey::namespace(1, 4242).as_bytes(),
                value.as_bytes()
            ),
            "service=1 scope=namespace client=4242 backend=2 lastUsedNs=5"
        );
        let key = AffinityKey {
            service: 1,
            scope: AffinityScope::Address,
            client: addr::from_ip("fd00::1".parse().unwrap()),
        };
        assert_eq!(
            text("affinity", key.as_bytes(), value.as_bytes()),
            "service=1 scope=address client=fd00::1 backend=2 lastUsedNs=5"
        );
    }

    #[test]
    fn a_source_range_is_shown_as_a_prefix_of_its_family() {
        let key = |source: &str| RangeKey {
            service_be: 9u32.to_be_bytes(),
            source: addr::from_ip(source.parse().unwrap()),
        };
        assert_eq!(
            Record::range(32 + 96 + 8, key("10.0.0.0")).to_string(),
            "service=9 source=10.0.0.0/8"
        );
        assert_eq!(
            Record::range(32 + 64, key("fd00::")).to_string(),
            "service=9 source=fd00::/64"
        );
    }

    #[test]
    fn what_is_not_there_is_a_dash_and_null() {
        let value = MasqValue {
            v4: addr::v4_mapped([192, 0, 2, 1]),
            v6: [0; 16],
        };
        let key = 2u32;
        assert_eq!(
            text("masq", key.as_bytes(), value.as_bytes()),
            "interface=2 v4=192.0.2.1 v6=-"
        );
        let name = NameValue {
            namespace: NameValue::field("default").unwrap(),
            name: NameValue::field("web").unwrap(),
            port: NameValue::field("").unwrap(),
            family: 4,
            protocol: 17,
            reserved: 0,
        };
        assert_eq!(
            text("name", key.as_bytes(), name.as_bytes()),
            "service=2 namespace=default name=web port=\"\" family=4 protocol=UDP"
        );
    }

    #[test]
    fn bytes_that_are_no_value_of_the_contract_are_not_decoded() {
        let mut value = [0; size_of::<FrontendValue>()];
        value[4] = 99;
        assert_eq!(Record::decode("frontend", &[0; 20], &value), None);
        assert_eq!(Record::decode("frontend", &[0; 3], &value), None);
        assert_eq!(
            Record::raw(&[1, 2], &[0xff]).to_string(),
            "rawKey=0x0102 rawValue=0xff"
        );
    }
}
