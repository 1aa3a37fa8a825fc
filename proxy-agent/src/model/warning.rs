//! Warnings about input that is skipped.

use std::fmt;

/// Something in an object (or file) that cannot be served. The rest of the object is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Warning {
    /// The object: `Service default/web`, `EndpointSlice default/web-x1`, a file's path.
    pub object: String,
    /// The field: `spec.ports[1].port`; empty for the whole object.
    pub field: String,
    /// What is wrong and what was done: "70000 is no port; the port is skipped".
    pub reason: String,
}

impl Warning {
    /// A warning from its parts.
    pub fn new(
        object: impl Into<String>,
        field: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            object: object.into(),
            field: field.into(),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.object)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.reason)
    }
}
