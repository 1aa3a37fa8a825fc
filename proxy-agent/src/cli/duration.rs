//! Durations as kube-proxy's flags and files write them: Go's `time.ParseDuration`.

use std::{fmt, str::FromStr, time::Duration};

/// A duration, written as `10s`, `1m30s`, `1.5h`, `250ms` or `0`. Negative ones are refused: no
/// flag of ours has a use for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoDuration(pub Duration);

/// Why a text is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a duration: write numbers with units (ns, us, ms, s, m, h), such as 10s or 1m30s")]
pub struct NoDuration;

/// Units by length in nanoseconds, long names first where one begins another.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3600 * 1_000_000_000),
];

impl FromStr for GoDuration {
    type Err = NoDuration;

    fn from_str(text: &str) -> Result<Self, NoDuration> {
        if text == "0" {
            return Ok(Self(Duration::ZERO));
        }
        let mut rest = text;
        let mut nanos = 0u64;
        while !rest.is_empty() {
            let end = rest
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .ok_or(NoDuration)?;
            let (number, tail) = rest.split_at(end);
            let (unit, length) = UNITS
                .into_iter()
                .find(|(unit, _)| tail.starts_with(unit))
                .ok_or(NoDuration)?;
            nanos = scale(number, length)
                .and_then(|part| nanos.checked_add(part))
                .ok_or(NoDuration)?;
            rest = &tail[unit.len()..];
        }
        if text.is_empty() {
            return Err(NoDuration);
        }
        Ok(Self(Duration::from_nanos(nanos)))
    }
}

/// `number` (digits with at most one point) times `length`, without floating point.
fn scale(number: &str, length: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let mut nanos = whole.checked_mul(length)?;
    let mut unit = length;
    for digit in fraction.bytes() {
        unit /= 10;
        nanos = nanos.checked_add(u64::from(char::from(digit).to_digit(10)?) * unit)?;
    }
    Some(nanos)
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_writes_is_read() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("10s", 10_000),
            ("1m30s", 90_000),
            ("1h0m0s", 3_600_000),
            ("1.5h", 5_400_000),
            ("250ms", 250),
            (".5s", 500),
            ("1.s", 1_000),
            ("1000us", 1),
            ("1000µs", 1),
            ("1000000ns", 1),
        ] {
            assert_eq!(
                text.parse(),
                Ok(GoDuration(Duration::from_millis(millis))),
                "{text}"
            );
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            "10",
            "s",
            ".s",
            "1..5s",
            "-1s",
            "1 s",
            "1d",
            "ten seconds",
            "10s5",
            "99999999999999999999s",
            "9999999999h",
        ] {
            assert_eq!(text.parse::<GoDuration>(), Err(NoDuration), "{text}");
        }
    }
}
