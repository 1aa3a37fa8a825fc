//! Ports of a Service.

use proxy_common::NameValue;

use super::{Port, Spec};
use crate::{
    model::ServicePort,
    source::{
        decoder::{Decoder, Review},
        field::{Field, quote},
    },
};

const PORT_SKIPPED: &str = "the port is skipped";
const NODE_PORT_SKIPPED: &str = "the port gets no NodePort";

/// The ports that can be served, in the object's order.
pub(super) fn ports(decoder: &mut Decoder, review: &mut Review, spec: &Spec) -> Vec<ServicePort> {
    let mut ports: Vec<ServicePort> = Vec::new();
    for (i, slim) in review.list(&spec.ports, "spec.ports", PORT_SKIPPED) {
        let Some(port) = port(decoder, review, i, slim) else {
            continue;
        };
        let same = |other: &&ServicePort| other.protocol == port.protocol;
        if ports
            .iter()
            .filter(same)
            .any(|other| other.name == port.name)
        {
            review.warn(
                format_args!("spec.ports[{i}].name"),
                format_args!(
                    "{} is the name of an earlier {} port; {PORT_SKIPPED}",
                    quote(&port.name),
                    port.protocol.name()
                ),
            );
        } else if ports
            .iter()
            .filter(same)
            .any(|other| other.port == port.port)
        {
            review.warn(
                format_args!("spec.ports[{i}].port"),
                format_args!(
                    "{}/{} is an earlier port already; {PORT_SKIPPED}",
                    port.port,
                    port.protocol.name()
                ),
            );
        } else {
            let taken = |other: &ServicePort| other.node_port == port.node_port;
            let node_port = if port.node_port != 0 && ports.iter().filter(same).any(taken) {
                review.warn(
                    format_args!("spec.ports[{i}].nodePort"),
                    format_args!(
                        "{}/{} is an earlier port's already; {NODE_PORT_SKIPPED}",
                        port.node_port,
                        port.protocol.name()
                    ),
                );
                0
            } else {
                port.node_port
            };
            ports.push(ServicePort { node_port, ..port });
        }
    }
    ports.shrink_to_fit();
    ports
}

fn port(decoder: &mut Decoder, review: &mut Review, i: usize, slim: &Port) -> Option<ServicePort> {
    let name_path = format_args!("spec.ports[{i}].name");
    let name = match &slim.name {
        Field::Absent => "",
        name => review.read(name, name_path, PORT_SKIPPED)?,
    };
    if !review.name(name_path, name, NameValue::MAX, PORT_SKIPPED) {
        return None;
    }
    let protocol = review.protocol(
        &slim.protocol,
        format_args!("spec.ports[{i}].protocol"),
        PORT_SKIPPED,
    )?;
    let port_path = format_args!("spec.ports[{i}].port");
    if slim.port.is_absent() {
        review.warn(port_path, format_args!("is missing; {PORT_SKIPPED}"));
    }
    let number = *review.read(&slim.port, port_path, PORT_SKIPPED)?;
    let port = review.port(port_path, number, PORT_SKIPPED)?;
    let node_path = format_args!("spec.ports[{i}].nodePort");
    let node_port = match review.read(&slim.node_port, node_path, NODE_PORT_SKIPPED) {
        None | Some(0) => 0,
        Some(&number) => review
            .port(node_path, number, NODE_PORT_SKIPPED)
            .unwrap_or(0),
    };
    Some(ServicePort {
        name: decoder.names.text(name),
        protocol,
        port,
        node_port,
    })
}
