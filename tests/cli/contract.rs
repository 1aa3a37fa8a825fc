//! What bpftool prints of each pin: the field names of `proxy-common`, by the real bpftool.

use std::{collections::BTreeSet, process::Command};

use proxy_common::{
    AffinityKey, AffinityValue, BackendValue, ConnectionValue, FlowKey, FlowValue, FragmentKey,
    FragmentValue, FrontendKey, FrontendValue, LoadValue, MasqValue, NameValue, NodeAddrKey,
    NodeAddrValue, PeerKey, PeerValue, RangeKey, ServiceValue, SettingValue, SlotValue, SockValue,
    map,
};
use serde_json::{Value, json};

use crate::place::Place;

/// The fields of a struct; does not compile unless they are all of them.
macro_rules! fields {
    ($name:ident { $($field:ident),* $(,)? }) => {{
        let _all = |$name { $($field: _),* }: $name| ();
        BTreeSet::from([$(stringify!($field)),*])
    }};
}

/// Names of the fields of key and value; empty for a plain number.
fn expected(name: &str) -> (BTreeSet<&'static str>, BTreeSet<&'static str>) {
    let number = BTreeSet::new;
    match name {
        "setting" => (
            number(),
            fields!(SettingValue {
                schema,
                agent,
                node_netns,
                started,
                last_sync,
                snat_first,
                snat_last,
                snat_reserved
            }),
        ),
        "frontend" => (
            fields!(FrontendKey {
                addr,
                port,
                protocol,
                reserved
            }),
            fields!(FrontendValue {
                service,
                kind,
                flags,
                reserved
            }),
        ),
        "service" => (
            number(),
            fields!(ServiceValue {
                id,
                sequence,
                records
            }),
        ),
        "name" => (
            number(),
            fields!(NameValue {
                namespace,
                name,
                port,
                family,
                protocol,
                reserved
            }),
        ),
        "counter" => (number(), number()),
        "slot" => (
            number(),
            fields!(SlotValue {
                addr,
                backend,
                service,
                port,
                reserved
            }),
        ),
        "connection" => (
            number(),
            fields!(ConnectionValue {
                cookie,
                lock,
                reserved,
                connected,
                tail
            }),
        ),
        "backend" => (
            number(),
            fields!(BackendValue {
                id,
                generation,
                service,
                addr,
                port,
                weight,
                protocol,
                state,
                flags,
                reserved
            }),
        ),
        "load" => (
            number(),
            fields!(LoadValue {
                backend,
                connections
            }),
        ),
        "affinity" => (
            fields!(AffinityKey {
                service,
                scope,
                client
            }),
            fields!(AffinityValue {
                last_used,
                backend,
                reserved
            }),
        ),
        "peer" => (
            fields!(PeerKey {
                cookie,
                addr,
                port,
                reserved
            }),
            fields!(PeerValue {
                vip,
                addr,
                vip_port,
                port,
                service,
                backend
            }),
        ),
        "flow" => (
            fields!(FlowKey {
                src,
                dst,
                src_port,
                dst_port,
                protocol,
                stage,
                reserved
            }),
            fields!(FlowValue {
                client,
                frontend,
                backend_addr,
                snat,
                last_seen,
                service,
                backend,
                client_port,
                frontend_port,
                backend_port,
                snat_port,
                stack_port,
                protocol,
                flags,
                request_seen,
                reply_seen,
                reserved
            }),
        ),
        "fragment" => (
            fields!(FragmentKey {
                src,
                dst,
                id,
                protocol,
                stage,
                reserved
            }),
            fields!(FragmentValue {
                id,
                fate,
                reserved,
                time,
                src,
                dst
            }),
        ),
        // The prefix length comes from the trie.
        "range" => (fields!(RangeKey { service_be, source }), number()),
        "node_addr" => (
            fields!(NodeAddrKey { addr }),
            fields!(NodeAddrValue { flags }),
        ),
        "masq" => (number(), fields!(MasqValue { v4, v6 })),
        "sock" => (
            number(),
            fields!(SockValue {
                connected,
                peers,
                counted,
                spilled
            }),
        ),
        other => panic!("map {other} is not in this test"),
    }
}

#[test]
fn bpftool_prints_the_field_names_of_the_contract_on_every_pin() {
    let place = Place::served();
    for spec in map::ALL {
        let path = place.pins().map(spec.name).display().to_string();
        let shown = bpftool(&["map", "show", "pinned", &path]);
        assert_eq!(shown["name"], spec.name);
        match spec.name {
            // The kernel knows no types for a ring buffer (kernel/bpf/ringbuf.c, map_check_no_btf).
            "event" => assert_eq!(shown["type"], "ringbuf"),
            // It belongs to sockets, so there is no entry to dump, but its types are there.
            "sock" => assert_eq!(types(&path), expected("sock").1),
            name => {
                // Arrays of fixed size are too long to be dumped; these elements are filled.
                let dump = match name {
                    "load" => json!([element(&path, 11)]),
                    "connection" => json!([element(&path, 9)]),
                    _ => bpftool(&["map", "dump", "pinned", &path]),
                };
                let entries = dump.as_array().expect("a list");
                assert!(!entries.is_empty(), "{name}");
                for entry in entries {
                    let (key, value) = expected(name);
                    assert_eq!(names(entry_key(entry)), key, "key of {name}: {entry}");
                    assert_eq!(names(entry_value(entry)), value, "value of {name}: {entry}");
                }
            }
        }
    }
}

fn element(path: &str, index: u8) -> Value {
    let index = index.to_string();
    bpftool(&[
        "map", "lookup", "pinned", path, "key", &index, "0", "0", "0",
    ])
}

fn entry_key(entry: &Value) -> &Value {
    let key = &entry["formatted"]["key"];
    assert!(!key.is_null(), "no types: {entry}");
    match &key["data"] {
        Value::Null => key,
        data => {
            assert!(key["prefix_len"].is_number(), "{key}");
            data
        }
    }
}

fn entry_value(entry: &Value) -> &Value {
    let formatted = &entry["formatted"];
    match &formatted["values"][0]["value"] {
        Value::Null => &formatted["value"],
        value => value,
    }
}

fn names(value: &Value) -> BTreeSet<&str> {
    match value {
        Value::Object(fields) => fields.keys().map(String::as_str).collect(),
        Value::Number(_) => BTreeSet::new(),
        other => panic!("neither fields nor a number: {other}"),
    }
}

/// Fields of the value type of a map, from its BTF.
fn types(path: &str) -> BTreeSet<&'static str> {
    let json = bpftool(&["btf", "dump", "map", "pinned", path, "value"]);
    let all = fields!(SockValue {
        connected,
        peers,
        counted,
        spilled
    });
    let members = json["types"][0]["members"].as_array().expect("members");
    let found: BTreeSet<_> = members.iter().filter_map(|m| m["name"].as_str()).collect();
    assert_eq!(found, all);
    all
}

fn bpftool(args: &[&str]) -> Value {
    let output = Command::new("bpftool")
        .arg("-j")
        .args(args)
        .output()
        .expect("bpftool is needed");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "bpftool {args:?}: {text}");
    serde_json::from_str(&text).expect("JSON of bpftool")
}
