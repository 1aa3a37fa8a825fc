//! Sizes and offsets of the contract. A failing test here means: raise `SCHEMA`.

use core::mem::{align_of, offset_of, size_of};

use proxy_common::{addr, map, *};
use zerocopy::IntoBytes;

#[test]
fn every_map_type_has_the_size_that_the_schema_says() {
    assert_eq!(SCHEMA, 5);
    let sizes = [
        ("FrontendKey", size_of::<FrontendKey>(), 20),
        ("FrontendValue", size_of::<FrontendValue>(), 8),
        ("ServiceRecord", size_of::<ServiceRecord>(), 28),
        ("ServiceValue", size_of::<ServiceValue>(), 64),
        ("NameValue", size_of::<NameValue>(), 196),
        ("BackendValue", size_of::<BackendValue>(), 36),
        ("LoadValue", size_of::<LoadValue>(), 8),
        ("AffinityKey", size_of::<AffinityKey>(), 24),
        ("AffinityValue", size_of::<AffinityValue>(), 16),
        ("SlotValue", size_of::<SlotValue>(), 32),
        ("ConnectionValue", size_of::<ConnectionValue>(), 64),
        ("SockValue", size_of::<SockValue>(), 228),
        ("OrphanRecord", size_of::<OrphanRecord>(), 32),
        ("PeerKey", size_of::<PeerKey>(), 32),
        ("PeerValue", size_of::<PeerValue>(), 44),
        ("FlowKey", size_of::<FlowKey>(), 40),
        ("FlowValue", size_of::<FlowValue>(), 96),
        ("FragmentKey", size_of::<FragmentKey>(), 40),
        ("FragmentValue", size_of::<FragmentValue>(), 48),
        ("RangeKey", size_of::<RangeKey>(), 20),
        ("NodeAddrKey", size_of::<NodeAddrKey>(), 16),
        ("MasqValue", size_of::<MasqValue>(), 32),
        ("SettingValue", size_of::<SettingValue>(), 40),
        ("EventRecord", size_of::<EventRecord>(), 32),
    ];
    for (name, is, expected) in sizes {
        assert_eq!(is, expected, "size of {name}");
    }
}

#[test]
fn values_that_can_be_reused_under_a_reader_start_with_an_id_and_a_number_that_rises() {
    assert_eq!(
        (
            offset_of!(ServiceValue, id),
            offset_of!(ServiceValue, sequence)
        ),
        (0, 4)
    );
    assert_eq!(
        (
            offset_of!(BackendValue, id),
            offset_of!(BackendValue, generation)
        ),
        (0, 4)
    );
}

#[test]
fn no_value_is_aligned_to_more_than_eight_bytes() {
    for align in [
        align_of::<FlowValue>(),
        align_of::<ConnectionValue>(),
        align_of::<SockValue>(),
        align_of::<EventRecord>(),
    ] {
        assert!(align <= 8);
    }
}

#[test]
fn a_frontend_key_has_its_golden_bytes() {
    let key = FrontendKey::new(addr::v4_mapped([10, 96, 0, 1]), 443, Protocol::Tcp);
    let mut golden = [0; 20];
    golden[10..16].copy_from_slice(&[0xff, 0xff, 10, 96, 0, 1]);
    golden[16..18].copy_from_slice(&443u16.to_ne_bytes());
    golden[18] = 6;
    assert_eq!(key.as_bytes(), golden);
}

#[test]
fn addresses_survive_the_way_to_the_map_form_and_back() {
    for text in [
        "10.96.0.1",
        "0.0.0.0",
        "::",
        "::1",
        "fd00::1",
        "2001:db8::ffff:1",
    ] {
        let ip: core::net::IpAddr = text.parse().unwrap();
        assert_eq!(addr::to_ip(&addr::from_ip(ip)), ip);
    }
}

#[test]
fn names_of_63_bytes_fit_and_longer_ones_do_not() {
    let long = "a".repeat(63);
    assert_eq!(NameValue::text(&NameValue::field(&long).unwrap()), long);
    assert_eq!(NameValue::field(&"a".repeat(64)), None);
    assert_eq!(NameValue::text(&NameValue::field("").unwrap()), "");
}

#[test]
fn map_names_fit_into_what_the_kernel_keeps_and_are_distinct() {
    for (i, spec) in map::ALL.iter().enumerate() {
        assert!(spec.name.len() <= 15, "{}", spec.name);
        assert!(
            map::ALL[..i].iter().all(|other| other.name != spec.name),
            "{}",
            spec.name
        );
    }
}

#[test]
fn counters_stand_at_the_index_of_their_number() {
    for (i, counter) in Counter::ALL.iter().enumerate() {
        assert_eq!(*counter as usize, i);
    }
}

#[test]
fn sockets_whose_cookies_follow_each_other_and_backends_whose_ids_do_have_elements_of_their_own() {
    let size = u64::from(map::CONNECTION.entries);
    assert_eq!(
        ConnectionValue::index(size - 1),
        map::CONNECTION.entries - 1
    );
    assert_eq!(ConnectionValue::index(size), 0);
    assert_eq!(
        ConnectionValue::index(u64::MAX),
        map::CONNECTION.entries - 1
    );
    assert_eq!(LoadValue::index(map::LOAD.entries + 5), 5);
    assert_eq!(ServiceValue::index(map::SERVICE.entries + 5), 5);
    // A division by what is no power of two would cost more than the lookup.
    for spec in [map::CONNECTION, map::LOAD, map::SERVICE] {
        assert!(spec.entries.is_power_of_two(), "{}", spec.name);
    }
}
