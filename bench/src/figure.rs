//! Figures: what every bench gives, as rows of a table and as JSON.

use std::{fs, io, path::Path};

use serde::Serialize;

/// One measured figure. The keys of the JSON form are these names.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    /// Name of the bench.
    pub(crate) bench: &'static str,
    /// What was measured.
    pub(crate) figure: String,
    /// How much, in `unit`.
    pub(crate) value: f64,
    /// Unit of `value`.
    pub(crate) unit: &'static str,
    /// What it stands beside, with its value; measured in the same run unless it says otherwise.
    pub(crate) against: Option<String>,
    /// `value` over that of `against`.
    pub(crate) ratio: Option<f64>,
    /// What is to be reached.
    pub(crate) bar: Option<String>,
    /// Whether it is.
    pub(crate) holds: Option<bool>,
}

impl Figure {
    /// A figure that stands alone.
    pub(crate) fn new(
        bench: &'static str,
        figure: impl Into<String>,
        value: f64,
        unit: &'static str,
    ) -> Self {
        Self {
            bench,
            figure: figure.into(),
            value,
            unit,
            against: None,
            ratio: None,
            bar: None,
            holds: None,
        }
    }

    /// Sets it beside another value of the same unit; the ratio is that of the two.
    pub(crate) fn against(self, what: &str, value: f64) -> Self {
        let ratio = self.value / value;
        self.against_with(what, value, ratio)
    }

    /// The same with a ratio that was taken otherwise: the median over rounds, say.
    pub(crate) fn against_with(mut self, what: &str, value: f64, ratio: f64) -> Self {
        self.against = Some(format!("{what}: {} {}", number(value), self.unit));
        self.ratio = Some(ratio);
        self
    }

    /// The ratio must not be above this.
    pub(crate) fn ratio_at_most(mut self, bar: f64) -> Self {
        self.bar = Some(format!("≤ {bar:.2} ×"));
        self.holds = self.ratio.map(|ratio| ratio <= bar);
        self
    }

    /// The value must not be above this.
    pub(crate) fn at_most(mut self, bar: f64) -> Self {
        self.bar = Some(format!("≤ {bar} {}", self.unit));
        self.holds = Some(self.value <= bar);
        self
    }
}

/// All figures of a run.
#[derive(Debug, Default)]
pub(crate) struct Sheet {
    figures: Vec<Figure>,
}

impl Sheet {
    /// Takes a figure in and prints it.
    pub(crate) fn add(&mut self, figure: Figure) {
        if self.figures.is_empty() {
            let titles = [
                "bench", "figure", "value", "against", "ratio", "bar", "holds",
            ];
            row(titles.map(str::to_owned));
        }
        row([
            figure.bench.to_owned(),
            figure.figure.clone(),
            format!("{} {}", number(figure.value), figure.unit),
            figure.against.clone().unwrap_or_default(),
            figure
                .ratio
                .map_or_else(String::new, |ratio| format!("{} ×", small(ratio))),
            figure.bar.clone().unwrap_or_default(),
            figure
                .holds
                .map_or("", |holds| if holds { "yes" } else { "NO" })
                .to_owned(),
        ]);
        self.figures.push(figure);
    }

    /// Writes all figures as a JSON list.
    pub(crate) fn write(&self, file: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(&self.figures)?;
        text.push(b'\n');
        fs::write(file, text)
    }
}

fn row(cells: [String; 7]) {
    let [bench, figure, value, against, ratio, bar, holds] = cells;
    println!("{bench:12}  {figure:46}  {value:>12}  {against:40}  {ratio:>11}  {bar:12}  {holds}");
}

/// Three digits that count.
fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// A ratio: three digits after the point, more where it is tiny.
fn small(ratio: f64) -> String {
    if ratio >= 0.01 {
        format!("{ratio:.3}")
    } else {
        format!("{ratio:.6}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_on_the_ratio_holds_up_to_the_bar_itself() {
        let figure = |value| {
            Figure::new("connect", "p50", value, "µs")
                .against("pod", 100.0)
                .ratio_at_most(1.05)
        };
        assert_eq!(figure(105.0).holds, Some(true));
        assert_eq!(figure(105.1).holds, Some(false));
    }

    #[test]
    fn a_figure_without_a_bar_says_neither_yes_nor_no() {
        let figure = Figure::new("hook", "connect4", 300.0, "ns");
        assert_eq!(figure.holds, None);
        assert_eq!(figure.at_most(299.0).holds, Some(false));
    }

    #[test]
    fn the_json_form_has_the_eight_keys() {
        let figure = Figure::new("connect", "p50", 21.0, "µs")
            .against("pod", 20.0)
            .ratio_at_most(1.05);
        let json = serde_json::to_value(&figure).unwrap();
        let keys: Vec<_> = json
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let mut wanted = [
            "bench", "figure", "value", "unit", "against", "ratio", "bar", "holds",
        ];
        wanted.sort_unstable();
        let mut keys = keys;
        keys.sort_unstable();
        assert_eq!(keys, wanted);
    }
}
