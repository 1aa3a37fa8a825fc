//! Which Services to show.

use std::{convert::Infallible, fmt, str::FromStr};

/// `web`, `default/web`, `web:http` or `default/web:http`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    namespace: Option<String>,
    name: String,
    port: Option<String>,
}

impl Filter {
    /// Whether a port of a Service is meant.
    pub(super) fn matches(&self, namespace: &str, name: &str, port: &str) -> bool {
        self.name == name
            && self
                .namespace
                .as_deref()
                .is_none_or(|wanted| wanted == namespace)
            && self.port.as_deref().is_none_or(|wanted| wanted == port)
    }
}

impl FromStr for Filter {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let (namespace, rest) = match text.split_once('/') {
            Some((namespace, rest)) => (Some(namespace.to_owned()), rest),
            None => (None, text),
        };
        let (name, port) = match rest.split_once(':') {
            Some((name, port)) => (name, Some(port.to_owned())),
            None => (rest, None),
        };
        Ok(Self {
            namespace,
            name: name.to_owned(),
            port,
        })
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)?;
        if let Some(port) = &self.port {
            write!(f, ":{port}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_names_a_service_by_as_much_as_it_says() {
        let services = [
            ("default", "web", "http"),
            ("default", "web", ""),
            ("other", "web", "http"),
            ("default", "webs", "http"),
        ];
        for (text, shown) in [
            ("web", [true, true, true, false]),
            ("default/web", [true, true, false, false]),
            ("web:http", [true, false, true, false]),
            ("default/web:http", [true, false, false, false]),
            ("default/web:", [false, true, false, false]),
            ("none", [false; 4]),
        ] {
            let filter: Filter = text.parse().unwrap();
            assert_eq!(
                services.map(|(namespace, name, port)| filter.matches(namespace, name, port)),
                shown,
                "{text}"
            );
            assert_eq!(filter.to_string(), text);
        }
    }
}
