//! Which warnings were reported already.
//!
//! An object with a fault is decoded again at every change and every new list; its warnings are
//! news once.

use std::collections::HashMap;

use super::Event;
use crate::model::Warning;

/// Most warnings that are reported of one object; a list of 1,000 bad addresses is one fault.
const MOST: usize = 16;

/// The warnings in force, by object.
#[derive(Debug, Default)]
pub(crate) struct Report {
    current: HashMap<String, Vec<Warning>>,
    /// What was in force before the list that is being read.
    previous: Option<HashMap<String, Vec<Warning>>>,
}

impl Report {
    /// Whether no object has a warning: there is nothing that [`Self::set`] could resolve.
    pub(crate) fn is_empty(&self) -> bool {
        self.current.is_empty()
    }

    /// A new full list starts: what it does not report again is resolved.
    pub(crate) fn start_list(&mut self) {
        // A list that broke off is followed by another.
        if self.previous.is_none() {
            self.previous = Some(std::mem::take(&mut self.current));
        } else {
            self.current.clear();
        }
    }

    /// The list is complete.
    pub(crate) fn end_list(&mut self, events: &mut Vec<Event>) {
        let mut resolved: Vec<String> = self
            .previous
            .take()
            .unwrap_or_default()
            .into_keys()
            .filter(|object| !self.current.contains_key(object))
            .collect();
        resolved.sort_unstable();
        events.extend(resolved.into_iter().map(Event::Resolved));
    }

    /// The warnings that now hold for an object. Pushes what is news.
    pub(crate) fn set(
        &mut self,
        object: String,
        mut warnings: Vec<Warning>,
        events: &mut Vec<Event>,
    ) {
        if warnings.len() > MOST {
            let more = warnings.len() - MOST;
            warnings.truncate(MOST);
            warnings.push(Warning::new(
                object.as_str(),
                "",
                format!("{more} more fields have faults"),
            ));
        }
        let before = match &mut self.previous {
            Some(previous) => previous.remove(&object),
            None => self.current.remove(&object),
        }
        .unwrap_or_default();
        let more = before.iter().all(|warning| warnings.contains(warning));
        if !more {
            events.push(Event::Resolved(object.clone()));
        }
        let news = warnings
            .iter()
            .filter(|warning| !more || !before.contains(warning));
        events.extend(news.cloned().map(Event::Warning));
        if !warnings.is_empty() {
            self.current.insert(object, warnings);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning(reason: &str) -> Warning {
        Warning::new("Service a/b", "spec", reason)
    }

    fn set(report: &mut Report, reasons: &[&str]) -> Vec<Event> {
        let mut events = Vec::new();
        let warnings = reasons.iter().map(|reason| warning(reason)).collect();
        report.set("Service a/b".into(), warnings, &mut events);
        events
    }

    fn resolved() -> Event {
        Event::Resolved("Service a/b".into())
    }

    #[test]
    fn a_warning_is_news_once() {
        let mut report = Report::default();
        assert_eq!(set(&mut report, &["x"]), [Event::Warning(warning("x"))]);
        assert_eq!(set(&mut report, &["x"]), []);
        assert_eq!(
            set(&mut report, &["x", "y"]),
            [Event::Warning(warning("y"))]
        );
    }

    #[test]
    fn a_mended_object_is_resolved() {
        let mut report = Report::default();
        set(&mut report, &["x", "y"]);
        assert_eq!(
            set(&mut report, &["y"]),
            [resolved(), Event::Warning(warning("y"))]
        );
        assert_eq!(set(&mut report, &[]), [resolved()]);
        assert!(report.is_empty());
        assert_eq!(set(&mut report, &[]), []);
    }

    #[test]
    fn a_new_list_repeats_no_warning_and_resolves_what_it_lacks() {
        let mut report = Report::default();
        let mut events = Vec::new();
        let other = Warning::new("Service a/c", "", "z");
        report.set("Service a/c".into(), vec![other], &mut events);
        set(&mut report, &["x"]);

        report.start_list();
        report.start_list();
        assert_eq!(set(&mut report, &["x"]), []);
        events.clear();
        report.end_list(&mut events);
        assert_eq!(events, [Event::Resolved("Service a/c".into())]);
    }

    #[test]
    fn an_object_with_countless_faults_is_cut_short() {
        let mut report = Report::default();
        let reasons: Vec<String> = (0..1000).map(|i| i.to_string()).collect();
        let reasons: Vec<&str> = reasons.iter().map(String::as_str).collect();
        let events = set(&mut report, &reasons);
        assert_eq!(events.len(), MOST + 1);
        let last = Warning::new("Service a/b", "", "984 more fields have faults");
        assert_eq!(events.last(), Some(&Event::Warning(last)));
    }
}
