//! What `sidestep-probe` prints: one JSON object a line, each a [`Line`].

use std::{collections::BTreeMap, net::SocketAddr};

use serde::{Deserialize, Serialize};

/// One line of the probe's output, as `{"attempt": {…}}` and so on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// A server listens on everything that it was told to.
    Ready(Ready),
    /// One connection, or one datagram and its answer.
    Attempt(Attempt),
    /// The figures of all attempts, or of one round on held sockets.
    Summary(Summary),
    /// Whether a port could be bound.
    Bound(Bound),
}

/// A server's first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// What it answers with.
    pub name: String,
    /// TCP sockets' addresses.
    pub tcp: Vec<SocketAddr>,
    /// UDP sockets' addresses.
    pub udp: Vec<SocketAddr>,
}

/// One connection, or one datagram and its answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// An answer came.
    pub ok: bool,
    /// The error's name as in errno(3), "ECONNREFUSED"; "EOF" when the server closed the
    /// connection without an answer. A timeout is "ETIMEDOUT" wherever it happened.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// Whether the connection was established, or the datagram sent, before the error.
    pub sent: bool,
    /// Name of the server that answered.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server: Option<String>,
    /// Address that the attempt was for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub to: Option<SocketAddr>,
    /// `getsockname`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub local: Option<SocketAddr>,
    /// `getpeername`, of connected sockets.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer: Option<SocketAddr>,
    /// Source address of the answer as `recvfrom` gives it, of UDP sockets.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub from: Option<SocketAddr>,
    /// Microseconds from the start of the run to the start of the attempt.
    pub at_us: u64,
    /// Microseconds that `connect` took; for datagrams, until the answer was read.
    pub latency_us: f64,
}

/// The figures of several attempts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Attempts.
    pub n: u64,
    /// Attempts with an answer.
    pub ok: u64,
    /// Attempts without.
    pub failed: u64,
    /// Failed attempts by error name.
    pub errors: BTreeMap<String, u64>,
    /// Answered attempts by server name.
    pub servers: BTreeMap<String, u64>,
    /// Latency of answered attempts in microseconds: half are at most this.
    pub p50_us: f64,
    /// 99 of 100 are at most this.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// Whether a port could be bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// It could.
    pub ok: bool,
    /// The error's name as in errno(3): "EADDRINUSE".
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// The socket's address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub local: Option<SocketAddr>,
}

/// What a run of the probe came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Every attempt, in order; none of a quiet run.
    pub attempts: Vec<Attempt>,
    /// The figures of all attempts.
    pub summary: Summary,
}

impl Report {
    /// The error of a run whose attempts all failed in the same way.
    #[must_use]
    pub fn refused_with(&self) -> Option<&str> {
        let Summary {
            ok: 0, ref errors, ..
        } = self.summary
        else {
            return None;
        };
        let mut names = errors.keys();
        names
            .next()
            .filter(|_| names.next().is_none())
            .map(String::as_str)
    }
}
