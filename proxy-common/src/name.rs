//! Names of services, so that the maps explain themselves when the agent is down.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Value of the `name` map, by service id. Each field is UTF-8, filled up with zero bytes;
/// 63 bytes is the most that Kubernetes allows for each (DNS label, RFC 1123).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub struct NameValue {
    /// Namespace of the Service.
    pub namespace: [u8; 64],
    /// Name of the Service.
    pub name: [u8; 64],
    /// Name of the port; empty for an unnamed one.
    pub port: [u8; 64],
    /// 4 or 6.
    pub family: u8,
    /// IANA number of the protocol.
    pub protocol: u8,
    /// Zero.
    pub reserved: u16,
}

impl NameValue {
    /// Most bytes that a field holds.
    pub const MAX: usize = 63;

    /// A field's bytes for a text; `None` if it is longer than [`MAX`](Self::MAX).
    pub fn field(text: &str) -> Option<[u8; 64]> {
        let mut bytes = [0; 64];
        let part = bytes
            .get_mut(..text.len())
            .filter(|_| text.len() <= Self::MAX)?;
        part.copy_from_slice(text.as_bytes());
        Some(bytes)
    }

    /// The text of a field: up to the first zero byte, empty if it is not UTF-8.
    pub fn text(field: &[u8; 64]) -> &str {
        let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
        core::str::from_utf8(&field[..end]).unwrap_or_default()
    }
}

crate::pod!(NameValue);
