//! The API server as a source, against one that the test plays: lists, watches, faults.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    server::{Server, Stream},
    *,
};
use crate::{
    model::{EndpointSlice, Node, ServiceName, Store, Warning},
    source::WatchState,
};

/// The source against a played server, with a store that takes the changes in.
struct Bench {
    server: Server,
    events: mpsc::Receiver<Event>,
    task: JoinHandle<()>,
    store: Store,
}

impl Bench {
    fn start() -> Self {
        Self::with_room(1024)
    }

    fn with_room(room: usize) -> Self {
        let (server, client) = Server::start();
        let (sender, events) = mpsc::channel(room);
        let settings = Settings {
            node_name: "n1".into(),
            external_ips: true,
        };
        Self {
            server,
            events,
            task: spawn_kube(client, &settings, sender),
            store: Store::new(Node {
                name: "n1".into(),
                zone: None,
            }),
        }
    }

    /// A source whose three watches are up, with these Services.
    async fn up(services: &[Value]) -> (Self, Stream, Stream, Stream) {
        let mut bench = Self::start();
        let services = bench.server.stream("services", services).await;
        let slices = bench.server.stream("endpointslices", &[]).await;
        let nodes = bench.server.stream("nodes", &[]).await;
        bench.settle().await;
        assert!(bench.store.is_complete());
        (bench, services, slices, nodes)
    }

    /// The next event; the store takes it in.
    async fn event(&mut self) -> Event {
        let event = self.events.recv().await.expect("the source lives");
        if let Event::Change(change) = &event {
            self.store.apply(change.clone());
        }
        event
    }

    /// The next event that is not that a watch is well.
    async fn news(&mut self) -> Event {
        loop {
            match self.event().await {
                Event::Watch(WatchState { lost: None, .. }) => {}
                event => return event,
            }
        }
    }

    /// All events until nothing comes for a moment (of paused time).
    async fn settle(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Ok(event) = timeout(Duration::from_millis(100), self.event()).await {
            events.push(event);
        }
        events
    }

    fn services(&self) -> Vec<String> {
        let mut names: Vec<String> = self.store.services().map(|s| s.name.to_string()).collect();
        names.sort();
        names
    }

    fn port(&self, name: &str) -> u16 {
        let service = self.store.service(&ServiceName::new("shop", name));
        service.expect("the Service").ports[0].port
    }
}

fn service(name: &str, port: u16) -> Value {
    json!({"kind": "Service", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "shop", "resourceVersion": "5"},
        "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": port, "protocol": "TCP"}]}})
}

fn slice(name: &str, service: &str) -> Value {
    json!({"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
        "metadata": {"name": name, "namespace": "shop", "resourceVersion": "5",
            "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["10.1.0.1"]}]})
}

fn node(name: &str, zone: &str) -> Value {
    json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "resourceVersion": "5",
        "labels": {"topology.kubernetes.io/zone": zone}}})
}

fn gone(name: &str) -> Event {
    Event::Change(Change::ServiceGone(ServiceName::new("shop", name)))
}

fn watch_state(event: &Event) -> Option<(&str, bool)> {
    match event {
        Event::Watch(state) => Some((&state.resource, state.lost.is_none())),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn the_requests_are_those_of_kube_proxy_and_no_others_w1_w2_w3() {
    let mut bench = Bench::start();
    let services = bench.server.call("services").await;
    let slices = bench.server.call("endpointslices").await;
    let nodes = bench.server.call("nodes").await;
    let has = |query: &str, part: &str| query.split('&').any(|p| p == part);
    for call in [&services, &slices, &nodes] {
        assert!(has(&call.query, "watch=true"), "{}", call.query);
        assert!(has(&call.query, "sendInitialEvents=true"), "{}", call.query);
    }
    let labels = "labelSelector=!service.kubernetes.io/service-proxy-name";
    assert!(has(&services.query, labels), "{}", services.query);
    assert!(
        has(&services.query, "fieldSelector=spec.clusterIP!=None"),
        "{}",
        services.query
    );
    let labels = "labelSelector=!service.kubernetes.io/headless";
    assert!(has(&slices.query, labels), "{}", slices.query);
    assert!(!slices.query.contains("fieldSelector"), "{}", slices.query);
    assert!(
        has(&nodes.query, "fieldSelector=metadata.name=n1"),
        "{}",
        nodes.query
    );
    assert!(!nodes.query.contains("labelSelector"), "{}", nodes.query);

    bench.server.seen.sort();
    assert_eq!(
        bench.server.seen,
        [
            "GET /api/v1/nodes",
            "GET /api/v1/services",
            "GET /apis/discovery.k8s.io/v1/endpointslices",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_is_reported_when_it_is_complete() {
    let mut bench = Bench::start();
    let mut services = bench.server.call("services").await.open();
    services.send("ADDED", service("a", 80)).await;
    services.send("ADDED", service("b", 80)).await;
    let early = bench.settle().await;
    assert!(
        early.iter().all(|event| watch_state(event).is_some()),
        "{early:?}"
    );
    services.end_list("10").await;
    let event = bench.news().await;
    assert!(matches!(&event, Event::Change(Change::Services(list)) if list.len() == 2));

    bench
        .server
        .stream("endpointslices", &[slice("a-1", "a")])
        .await;
    let event = bench.news().await;
    assert!(matches!(&event, Event::Change(Change::Slices(list)) if list.len() == 1));
    assert!(bench.store.is_complete());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_is_never_reported() {
    let mut bench = Bench::start();
    let mut services = bench.server.call("services").await.open();
    services.send("ADDED", service("old", 80)).await;
    services.reset();
    bench.server.stream("services", &[service("new", 80)]).await;
    let events = bench.settle().await;
    let lists: Vec<&Event> = events
        .iter()
        .filter(|e| matches!(e, Event::Change(_)))
        .collect();
    assert_eq!(lists.len(), 1, "{events:?}");
    assert_eq!(bench.services(), ["shop/new"]);
}

#[tokio::test(start_paused = true)]
async fn changes_come_one_by_one_t72() {
    let (mut bench, mut services, mut slices, _nodes) = Bench::up(&[service("a", 80)]).await;
    services.send("MODIFIED", service("a", 81)).await;
    bench.news().await;
    assert_eq!(bench.port("a"), 81);
    services.send("ADDED", service("b", 80)).await;
    bench.news().await;
    assert_eq!(bench.services(), ["shop/a", "shop/b"]);
    services.send("DELETED", service("a", 81)).await;
    assert_eq!(bench.news().await, gone("a"));

    slices.send("ADDED", slice("b-1", "b")).await;
    bench.news().await;
    let backends = |bench: &Bench| -> Vec<EndpointSlice> {
        bench.store.slices(&ServiceName::new("shop", "b")).to_vec()
    };
    assert_eq!(backends(&bench).len(), 1);
    slices.send("DELETED", slice("b-1", "b")).await;
    bench.news().await;
    assert_eq!(backends(&bench), []);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_another_proxy_takes_over_is_gone_w1() {
    let (mut bench, mut services, _slices, _nodes) = Bench::up(&[service("a", 80)]).await;
    // With the selector the server says DELETED; one that ignored it would say MODIFIED.
    let mut other = service("a", 80);
    other["metadata"]["labels"] = json!({"service.kubernetes.io/service-proxy-name": ""});
    services.send("MODIFIED", other.clone()).await;
    assert_eq!(bench.news().await, gone("a"));
    services.send("DELETED", other).await;
    assert_eq!(bench.settle().await, [], "said once");
}

#[tokio::test(start_paused = true)]
async fn the_own_nodes_zone_is_followed_and_its_deletion_ignored_w3_t71() {
    let (mut bench, _services, _slices, mut nodes) = Bench::up(&[]).await;
    nodes.send("ADDED", node("n1", "a")).await;
    bench.news().await;
    assert_eq!(bench.store.node().zone.as_deref(), Some("a"));
    nodes.send("MODIFIED", node("n1", "b")).await;
    bench.news().await;
    assert_eq!(bench.store.node().zone.as_deref(), Some("b"));
    nodes.send("DELETED", node("n1", "b")).await;
    nodes.send("ADDED", node("n2", "c")).await;
    assert_eq!(bench.settle().await, []);
}

#[tokio::test(start_paused = true)]
async fn one_unreadable_object_does_not_cost_the_list() {
    let mut bench = Bench::start();
    let odd = json!({"kind": "Service", "apiVersion": "v1", "spec": [],
        "metadata": {"name": "odd", "namespace": "shop", "resourceVersion": "5"}});
    bench
        .server
        .stream("services", &[odd, service("a", 80)])
        .await;
    let Event::Warning(warning) = bench.news().await else {
        panic!("a warning comes first");
    };
    assert_eq!(warning.object, "Service shop/odd");
    bench.news().await;
    assert_eq!(bench.services(), ["shop/a"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_became_unreadable_keeps_its_last_good_state() {
    let (mut bench, mut services, _slices, _nodes) =
        Bench::up(&[service("a", 80), service("b", 80), service("c", 80)]).await;
    let mut odd = service("a", 80);
    odd["spec"] = json!("nonsense");
    services.send("MODIFIED", odd.clone()).await;
    assert!(matches!(bench.news().await, Event::Warning(_)));
    assert_eq!(bench.services(), ["shop/a", "shop/b", "shop/c"]);

    // Also over a new full list, and without a second warning.
    services.error(410).await;
    bench
        .server
        .stream("services", &[odd, service("b", 81)])
        .await;
    let events = bench.settle().await;
    assert!(
        !events.iter().any(|e| matches!(e, Event::Warning(_))),
        "{events:?}"
    );
    assert_eq!(bench.services(), ["shop/a", "shop/b"]);
    assert_eq!((bench.port("a"), bench.port("b")), (80, 81));
}

#[tokio::test(start_paused = true)]
async fn a_mended_object_resolves_its_warnings() {
    let (mut bench, mut services, _slices, _nodes) = Bench::up(&[]).await;
    services.send("ADDED", service("a", 0)).await;
    let Event::Warning(Warning { object, field, .. }) = bench.event().await else {
        panic!("a warning comes first");
    };
    assert_eq!(
        (object.as_str(), field.as_str()),
        ("Service shop/a", "spec.ports[0].port")
    );
    bench.settle().await;
    services.send("MODIFIED", service("a", 80)).await;
    let events = bench.settle().await;
    assert!(events.contains(&Event::Resolved(object)), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_old_means_a_new_full_list() {
    let (mut bench, mut services, _slices, _nodes) =
        Bench::up(&[service("a", 80), service("b", 80)]).await;
    services.error(410).await;
    let mut services = bench.server.stream("services", &[service("b", 80)]).await;
    bench.settle().await;
    assert_eq!(bench.services(), ["shop/b"]);
    services.send("ADDED", service("c", 80)).await;
    bench.news().await;
    assert_eq!(bench.services(), ["shop/b", "shop/c"]);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_refused_at_the_start_of_a_watch_means_a_new_full_list() {
    let (mut bench, services, _slices, _nodes) = Bench::up(&[service("a", 80)]).await;
    drop(services);
    let call = bench.server.call("services").await;
    assert!(call.query.contains("resourceVersion=10"), "{}", call.query);
    call.refuse(410, "too old resource version").await;
    bench.server.stream("services", &[service("b", 80)]).await;
    bench.settle().await;
    assert_eq!(bench.services(), ["shop/b"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_is_taken_up_where_it_was() {
    let (mut bench, services, _slices, _nodes) = Bench::up(&[service("a", 80)]).await;
    drop(services);
    let call = bench.server.call("services").await;
    assert!(call.query.contains("resourceVersion=10"), "{}", call.query);
    assert!(!call.query.contains("sendInitialEvents"), "{}", call.query);
    let mut services = call.open();
    services.send("ADDED", service("b", 80)).await;
    let event = bench.event().await;
    assert!(
        matches!(event, Event::Change(Change::Service(_))),
        "{event:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_watch_is_said_once_and_so_is_its_return() {
    let (mut bench, services, _slices, _nodes) = Bench::up(&[service("a", 80)]).await;
    services.reset();
    for _ in 0..5 {
        bench.server.call("services").await.hang_up();
    }
    let Event::Watch(WatchState { resource, lost }) = bench.event().await else {
        panic!("the state comes first");
    };
    assert_eq!(resource, "services");
    assert!(lost.is_some_and(|reason| reason.contains("connection reset")));
    // Nothing happens in the cluster, and still it is noticed that the watch is back.
    let _services = bench.server.call("services").await.open();
    let event = bench.event().await;
    assert_eq!(watch_state(&event), Some(("services", true)), "{event:?}");
    assert_eq!(bench.settle().await, []);
    assert_eq!(bench.services(), ["shop/a"]);
}

#[tokio::test(start_paused = true)]
async fn missing_rights_are_said_with_the_servers_words_and_retried() {
    let mut bench = Bench::start();
    for _ in 0..3 {
        let call = bench.server.call("services").await;
        assert!(
            call.query.contains("sendInitialEvents"),
            "no fall-back: {}",
            call.query
        );
        call.refuse(403, "services is forbidden: User x cannot list")
            .await;
    }
    let Event::Watch(WatchState { lost, .. }) = bench.event().await else {
        panic!("the state comes first");
    };
    assert!(lost.is_some_and(|reason| reason.contains("User x cannot list")));
    bench.server.stream("services", &[service("a", 80)]).await;
    bench.settle().await;
    assert_eq!(bench.services(), ["shop/a"]);
}

#[tokio::test(start_paused = true)]
async fn where_streaming_lists_are_refused_pages_are_listed_for_good() {
    let mut bench = Bench::start();
    let call = bench.server.call("services").await;
    call.refuse(
        422,
        "sendInitialEvents is forbidden for watch unless the WatchList gate is on",
    )
    .await;
    let call = bench.server.call("services").await;
    assert!(call.query.contains("limit=500"), "{}", call.query);
    assert!(!call.query.contains("watch=true"), "{}", call.query);
    call.list(&[service("a", 80)], "page-2").await;
    let call = bench.server.call("services").await;
    assert!(call.query.contains("continue=page-2"), "{}", call.query);
    call.list(&[service("b", 80)], "").await;
    let call = bench.server.call("services").await;
    assert!(call.query.contains("watch=true"), "{}", call.query);
    assert!(!call.query.contains("sendInitialEvents"), "{}", call.query);
    let mut services = call.open();
    let events = bench.settle().await;
    assert!(
        !events
            .iter()
            .any(|e| matches!(watch_state(e), Some((_, false)))),
        "{events:?}"
    );
    assert_eq!(bench.services(), ["shop/a", "shop/b"]);

    // The second full list does not try again.
    services.error(410).await;
    let call = bench.server.call("services").await;
    assert!(call.query.contains("limit=500"), "{}", call.query);
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_never_ends_is_given_up() {
    let mut bench = Bench::start();
    let mut services = bench.server.call("services").await.open();
    services.send("ADDED", service("a", 80)).await;
    let call = bench.server.call("services").await;
    assert!(call.query.contains("limit=500"), "{}", call.query);
    call.list(&[service("a", 80)], "").await;
    bench.settle().await;
    assert_eq!(bench.services(), ["shop/a"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_know_the_field_selector_is_asked_without_it() {
    let mut bench = Bench::start();
    let call = bench.server.call("services").await;
    call.refuse(400, "field label not supported: spec.clusterIP")
        .await;
    let call = bench.server.call("services").await;
    assert!(!call.query.contains("fieldSelector"), "{}", call.query);
    assert!(call.query.contains("labelSelector"), "{}", call.query);
    let mut services = call.open();
    let mut headless = service("h", 80);
    headless["spec"]["clusterIP"] = "None".into();
    services.send("ADDED", headless).await;
    services.send("ADDED", service("a", 80)).await;
    services.end_list("10").await;
    bench.settle().await;
    assert_eq!(bench.services(), ["shop/a"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_loses_nothing() {
    let mut bench = Bench::with_room(1);
    let mut services = bench.server.stream("services", &[]).await;
    let sender = tokio::spawn(async move {
        for port in 1..=500 {
            services.send("MODIFIED", service("a", port)).await;
        }
        services
    });
    let mut ports = Vec::new();
    while ports.len() < 500 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if let Event::Change(Change::Service(service)) = bench.event().await {
            ports.push(service.ports[0].port);
        }
    }
    assert_eq!(ports, (1..=500).collect::<Vec<u16>>());
    sender.await.expect("the sender ends");
}

#[tokio::test(start_paused = true)]
async fn the_source_ends_when_its_reader_is_gone() {
    let (bench, _services, _slices, _nodes) = Bench::up(&[]).await;
    drop(bench.events);
    bench.task.await.expect("ends without a panic");
}
