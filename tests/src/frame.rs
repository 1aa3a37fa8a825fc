//! Packets as they are on a wire, built whole by a library that knows nothing of ours, so that every
//! checksum is one that was computed anew.

use std::net::{IpAddr, SocketAddr};

use anyhow::bail;
use etherparse::{
    IpFragOffset, IpHeaders, IpNumber, Ipv4Extensions, Ipv4Header, Ipv4Options, Ipv6Extensions,
    Ipv6FlowLabel, Ipv6FragmentHeader, Ipv6Header, Ipv6RawExtHeader, PacketBuilder, TcpHeader,
};

/// Length of the Ethernet header.
pub const ETHERNET: usize = 14;

/// What the packet carries.
#[derive(Clone, Debug)]
pub enum Transport {
    /// With these flags, of `SAFR`.
    Tcp(&'static str),
    /// With a checksum or with zero in its place.
    Udp {
        /// Whether it has one.
        checksum: bool,
    },
}

/// A packet that is to be written.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Source.
    pub from: SocketAddr,
    /// Destination.
    pub to: SocketAddr,
    /// Its transport header.
    pub transport: Transport,
    /// What it carries.
    pub payload: Vec<u8>,
    /// Octets of IPv4 options, or of IPv6 extension headers before the transport.
    pub options: usize,
    /// Identification: of IPv4, and of fragments of IPv6.
    pub id: u16,
    /// Destination address of the Ethernet header; that of `lo`, where test runs play, is zero.
    pub destination: [u8; 6],
}

impl Frame {
    /// A segment with these flags.
    #[must_use]
    pub fn tcp(flags: &'static str, from: SocketAddr, to: SocketAddr) -> Self {
        Self::new(Transport::Tcp(flags), from, to)
    }

    /// A datagram.
    #[must_use]
    pub fn udp(from: SocketAddr, to: SocketAddr) -> Self {
        Self::new(Transport::Udp { checksum: true }, from, to)
    }

    fn new(transport: Transport, from: SocketAddr, to: SocketAddr) -> Self {
        Self {
            from,
            to,
            transport,
            payload: b"an odd number of octets".to_vec(),
            options: 0,
            id: 0x4321,
            destination: [0; 6],
        }
    }

    /// The same from elsewhere.
    #[must_use]
    pub fn from(&self, from: SocketAddr) -> Self {
        Self {
            from,
            ..self.clone()
        }
    }

    /// The same to elsewhere.
    #[must_use]
    pub fn to(&self, to: SocketAddr) -> Self {
        Self { to, ..self.clone() }
    }

    /// The answer to it, with these TCP flags.
    #[must_use]
    pub fn answer(&self, flags: &'static str) -> Self {
        let transport = match &self.transport {
            Transport::Tcp(_) => Transport::Tcp(flags),
            udp @ Transport::Udp { .. } => udp.clone(),
        };
        Self {
            from: self.to,
            to: self.from,
            transport,
            ..self.clone()
        }
    }

    /// The same connection, with these TCP flags.
    #[must_use]
    pub fn then(&self, flags: &'static str) -> Self {
        self.answer(flags).answer(flags)
    }

    /// The same with another payload.
    #[must_use]
    pub fn with_payload(&self, payload: &[u8]) -> Self {
        Self {
            payload: payload.to_vec(),
            ..self.clone()
        }
    }

    /// The same with so many octets of options or extension headers.
    #[must_use]
    pub fn with_options(&self, options: usize) -> Self {
        Self {
            options,
            ..self.clone()
        }
    }

    /// The same with another identification.
    #[must_use]
    pub fn with_id(&self, id: u16) -> Self {
        Self { id, ..self.clone() }
    }

    /// The same datagram without a checksum.
    #[must_use]
    pub fn without_checksum(&self) -> Self {
        Self {
            transport: Transport::Udp { checksum: false },
            ..self.clone()
        }
    }

    /// With its Ethernet header.
    ///
    /// # Errors
    ///
    /// If there is no such packet: two families, too long, an unknown flag.
    pub fn bytes(&self) -> anyhow::Result<Vec<u8>> {
        let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], self.destination);
        let builder = builder.ip(self.ip()?);
        let mut bytes = Vec::new();
        match &self.transport {
            Transport::Tcp(flags) => {
                let mut header = TcpHeader::new(self.from.port(), self.to.port(), 0x0102_0304, 501);
                for flag in flags.chars() {
                    match flag {
                        'S' => header.syn = true,
                        'A' => header.ack = true,
                        'F' => header.fin = true,
                        'R' => header.rst = true,
                        _ => bail!("no such flag: {flag}"),
                    }
                }
                let builder = builder.tcp_header(header);
                builder.write(&mut bytes, &self.payload)?;
            }
            Transport::Udp { checksum } => {
                let builder = builder.udp(self.from.port(), self.to.port());
                builder.write(&mut bytes, &self.payload)?;
                if !checksum {
                    let at = bytes.len() - self.payload.len() - 2;
                    bytes[at..at + 2].fill(0);
                }
            }
        }
        Ok(bytes)
    }

    /// In fragments for an MTU, each with its Ethernet header, in order. One of IPv6 that fits is an
    /// atomic fragment.
    ///
    /// # Errors
    ///
    /// If there is no such packet: two families, too long, an unknown flag.
    pub fn fragments(&self, mtu: usize) -> anyhow::Result<Vec<Vec<u8>>> {
        let whole = self.bytes()?;
        let (ethernet, packet) = whole.split_at(ETHERNET);
        let header = match self.ip()? {
            IpHeaders::Ipv4(..) => 20,
            IpHeaders::Ipv6(..) => 40 + 8,
        };
        let rest = &packet[if header == 20 { 20 } else { 40 }..];
        let size = (mtu - header) / 8 * 8;
        let mut fragments = Vec::new();
        for (i, part) in rest.chunks(size).enumerate() {
            let offset = IpFragOffset::try_new(u16::try_from(i * size / 8)?)?;
            let more = (i + 1) * size < rest.len();
            let mut bytes = ethernet.to_vec();
            if header == 20 {
                let (mut ip, _) = Ipv4Header::from_slice(packet)?;
                ip.dont_fragment = false;
                (ip.more_fragments, ip.fragment_offset) = (more, offset);
                ip.set_payload_len(part.len())?;
                ip.header_checksum = ip.calc_header_checksum();
                ip.write(&mut bytes)?;
            } else {
                let (mut ip, _) = Ipv6Header::from_slice(packet)?;
                let fragment = Ipv6FragmentHeader {
                    next_header: ip.next_header,
                    fragment_offset: offset,
                    more_fragments: more,
                    identification: 0x00ab_0000 | u32::from(self.id),
                };
                ip.next_header = IpNumber::IPV6_FRAGMENTATION_HEADER;
                ip.set_payload_length(8 + part.len())?;
                ip.write(&mut bytes)?;
                bytes.extend(fragment.to_bytes());
            }
            bytes.extend(part);
            fragments.push(bytes);
        }
        Ok(fragments)
    }

    fn ip(&self) -> anyhow::Result<IpHeaders> {
        Ok(match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let header = Ipv4Header {
                    time_to_live: 63,
                    identification: self.id,
                    dont_fragment: true,
                    fragment_offset: IpFragOffset::ZERO,
                    source: source.octets(),
                    destination: destination.octets(),
                    // One "no operation" after the other (RFC 791).
                    options: Ipv4Options::try_from(vec![1; self.options].as_slice())?,
                    ..Ipv4Header::default()
                };
                IpHeaders::Ipv4(header, Ipv4Extensions::default())
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let header = Ipv6Header {
                    hop_limit: 63,
                    flow_label: Ipv6FlowLabel::try_new(0x12345)?,
                    source: source.octets(),
                    destination: destination.octets(),
                    ..Ipv6Header::default()
                };
                let mut extensions = Ipv6Extensions::default();
                if self.options > 0 {
                    // PadN (RFC 8200 4.2) over the whole header.
                    let length = self.options - 2;
                    let mut pad = vec![0; length];
                    pad[0] = 1;
                    pad[1] = u8::try_from(length - 2)?;
                    extensions.hop_by_hop_options =
                        Some(Ipv6RawExtHeader::new_raw(IpNumber::UDP, &pad)?);
                    extensions.destination_options =
                        Some(Ipv6RawExtHeader::new_raw(IpNumber::UDP, &pad)?);
                }
                IpHeaders::Ipv6(header, extensions)
            }
            _ => bail!("a packet of two families: {self:?}"),
        })
    }
}
