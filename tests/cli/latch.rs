//! How the record of a service is replaced.

use proxy_agent::{
    datapath::{Dataplane as _, Error, Kernel},
    plan::{Op, Transaction, Unit},
};
use proxy_common::{Scheduler, ServiceRecord, ServiceValue, Window, map};

use crate::place::Place;

fn record(base: u32) -> ServiceRecord {
    ServiceRecord {
        base,
        local: Window::default(),
        cluster: Window {
            offset: 0,
            count: 1,
        },
        affinity_seconds: 0,
        scheduler: Scheduler::Random,
        has_any: 1,
        reserved: 0,
    }
}

/// Writes one thing; the error if it is refused.
fn write(kernel: &mut Kernel, op: Op) -> Option<Error> {
    let unit = Unit {
        service: None,
        ops: vec![op],
        undo: vec![None],
    };
    let outcome = kernel.apply(&Transaction { units: vec![unit] });
    outcome.failed.into_iter().next().map(|failed| failed.error)
}

#[test]
fn a_new_record_stands_beside_the_one_that_held_and_is_turned_to() {
    let place = Place::served();
    let mut kernel = Kernel::open(&place.pins()).expect("open");
    for (id, base) in [(7, 70), (7, 71), (7, 72)] {
        assert!(write(&mut kernel, Op::PutService(id, record(base))).is_none());
    }
    let value: ServiceValue = place.get(map::SERVICE.name, ServiceValue::index(7));
    assert_eq!(value.id, 7);
    assert_eq!(value.record(), Some(&record(72)));
    let other = value.records[1 - ServiceValue::latch(value.sequence)];
    assert_eq!(other, record(71), "who was reading it still can");

    assert!(write(&mut kernel, Op::DeleteService(7)).is_none());
    let gone: ServiceValue = place.get(map::SERVICE.name, ServiceValue::index(7));
    assert_eq!((gone.record(), gone.sequence), (None, value.sequence));
    let services = kernel.dump().expect("dump").services;
    assert_eq!(services.keys().collect::<Vec<_>>(), [&1]);
}

#[test]
fn a_service_whose_element_another_one_has_is_refused_whole() {
    let place = Place::served();
    let mut kernel = Kernel::open(&place.pins()).expect("open");
    let twin = 1 + map::SERVICE.entries;
    let before = kernel.dump().expect("dump");
    let error = write(&mut kernel, Op::PutService(twin, record(9))).expect("no room");
    assert_eq!(
        error.to_string(),
        "map service is full at 131072 entries: remove Services"
    );
    assert!(write(&mut kernel, Op::DeleteService(twin)).is_none());
    assert_eq!(kernel.dump().expect("dump"), before);
}
