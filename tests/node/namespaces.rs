//! Finding and entering network namespaces.

use std::collections::BTreeMap;

use proxy_agent::node::namespace::{self, Namespace};

use crate::place::Place;

#[test]
fn every_namespace_is_visited_once_by_name_or_by_process() {
    let places = [Place::named(), Place::with_process()];
    // A second process in the first one, and so a second way to it.
    let second = places[0].inside(|| {
        std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
    });
    let mut second = second.expect("start cat(1)");

    let mut visits = BTreeMap::new();
    let visited = namespace::visit_all(|at| {
        *visits.entry(at.inode()).or_insert(0) += 1;
        let here = Namespace::current()
            .expect("the thread's namespace")
            .inode();
        assert_eq!(here, at.inode());
    })
    .expect("visit namespaces");
    drop(second.stdin.take());
    second.wait().expect("wait for cat(1)");

    assert_eq!(visited.entered as usize, visits.len());
    assert!(visits.values().all(|&count| count == 1), "{visits:?}");
    let own = Namespace::current().expect("own namespace").inode();
    for inode in [
        own,
        places[0].namespace.inode(),
        places[1].namespace.inode(),
    ] {
        assert!(visits.contains_key(&inode), "{inode} not in {visits:?}");
    }
}

#[test]
fn the_calling_thread_stays_in_its_namespace() {
    let before = Namespace::current().expect("own namespace").inode();
    let place = Place::named();
    let inside = place.inside(|| Namespace::current().expect("namespace").inode());
    assert_eq!(inside, place.namespace.inode());
    assert_ne!(inside, before);
    assert_eq!(Namespace::current().expect("own namespace").inode(), before);
}

#[test]
fn each_namespace_has_its_own_cookie() {
    let place = Place::named();
    let cookie = |namespace: &Namespace| namespace.cookie().expect("enter").expect("ask");
    let own = namespace::cookie().expect("ask");
    assert_eq!(own, cookie(&Namespace::current().expect("own namespace")));
    assert_ne!(own, cookie(&place.namespace));
}

#[test]
fn what_is_no_network_namespace_is_not_entered() {
    let null = Namespace::open("/dev/null").expect("open");
    assert!(matches!(
        null.run(|| ()),
        Err(namespace::Error::Enter { .. })
    ));
}
