//! Every map, declared once. Names, and so pins, are those of `proxy_common::map`.

use aya_ebpf::{
    bindings::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC},
    btf_maps::{Array, HashMap, LpmTrie, LruHashMap, PerCpuArray, RingBuf, SkStorage},
    macros::btf_map,
};
use proxy_common::{map, *};

const NO_PREALLOC: usize = BPF_F_NO_PREALLOC as usize;
const MMAPABLE: usize = BPF_F_MMAPABLE as usize;

macro_rules! entries {
    ($spec:ident) => {{ map::$spec.entries as usize }};
}

#[btf_map(name = "setting")]
pub static SETTING: Array<SettingValue, { entries!(SETTING) }> = Array::new();
#[btf_map(name = "frontend")]
pub static FRONTEND: HashMap<FrontendKey, FrontendValue, { entries!(FRONTEND) }, NO_PREALLOC> =
    HashMap::new();
#[btf_map(name = "service")]
pub static SERVICE: Array<ServiceValue, { entries!(SERVICE) }, MMAPABLE> = Array::new();
#[btf_map(name = "name")]
pub static NAME: HashMap<u32, NameValue, { entries!(NAME) }, NO_PREALLOC> = HashMap::new();
#[btf_map(name = "slot")]
pub static SLOT: Array<SlotValue, { entries!(SLOT) }, MMAPABLE> = Array::new();
#[btf_map(name = "backend")]
pub static BACKEND: HashMap<u32, BackendValue, { entries!(BACKEND) }, NO_PREALLOC> = HashMap::new();
#[btf_map(name = "load")]
pub static LOAD: Array<LoadValue, { entries!(LOAD) }, MMAPABLE> = Array::new();
#[btf_map(name = "affinity")]
pub static AFFINITY: LruHashMap<AffinityKey, AffinityValue, { entries!(AFFINITY) }> =
    LruHashMap::new();
#[btf_map(name = "connection")]
pub static CONNECTION: Array<ConnectionValue, { entries!(CONNECTION) }, MMAPABLE> = Array::new();
#[btf_map(name = "sock")]
pub static SOCK: SkStorage<SockValue> = SkStorage::new();
#[btf_map(name = "peer")]
pub static PEER: LruHashMap<PeerKey, PeerValue, { entries!(PEER) }> = LruHashMap::new();
#[btf_map(name = "flow")]
pub static FLOW: HashMap<FlowKey, FlowValue, { entries!(FLOW) }, NO_PREALLOC> = HashMap::new();
#[btf_map(name = "fragment")]
pub static FRAGMENT: LruHashMap<FragmentKey, FragmentValue, { entries!(FRAGMENT) }> =
    LruHashMap::new();
#[btf_map(name = "range")]
pub static RANGE: LpmTrie<RangeKey, u32, { entries!(RANGE) }> = LpmTrie::new();
#[btf_map(name = "node_addr")]
pub static NODE_ADDR: HashMap<NodeAddrKey, NodeAddrValue, { entries!(NODE_ADDR) }, NO_PREALLOC> =
    HashMap::new();
#[btf_map(name = "masq")]
pub static MASQ: HashMap<u32, MasqValue, { entries!(MASQ) }, NO_PREALLOC> = HashMap::new();
#[btf_map(name = "counter")]
pub static COUNTER: PerCpuArray<u64, { entries!(COUNTER) }> = PerCpuArray::new();
#[btf_map(name = "event")]
pub static EVENT: RingBuf<EventRecord, { entries!(EVENT) }> = RingBuf::new();
