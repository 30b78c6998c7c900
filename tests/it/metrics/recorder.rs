//! A metrics recorder whose records tests can read.

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata,
    SharedString, Unit,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// A metrics recorder for tests. Clones share their records.
#[derive(Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<Records>>);

#[derive(Default)]
struct Records {
    families: BTreeMap<String, Family>,
    series: BTreeMap<(String, Labels), Arc<Series>>,
}

pub(super) type Labels = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Family {
    pub(super) kind: &'static str,
    pub(super) unit: Option<Unit>,
    pub(super) meaning: String,
}

/// All recorded values of a series, in order. For counters and gauges, these are the changes of the value.
#[derive(Default)]
struct Series(Mutex<Vec<f64>>);

impl Series {
    fn add(&self, value: f64) {
        self.0.lock().expect("no panic").push(value);
    }

    fn recorded(&self) -> Vec<f64> {
        self.0.lock().expect("no panic").clone()
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        self.add(u32::try_from(value).expect("a small number").into());
    }

    fn absolute(&self, _: u64) {
        unreachable!("counters are raised")
    }
}

impl GaugeFn for Series {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, _: f64) {
        unreachable!("gauges of several clients are sums")
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.add(value);
    }
}

impl Recorder {
    fn describe(&self, kind: &'static str, name: &KeyName, unit: Option<Unit>, what: &str) {
        let family = Family { kind, unit, meaning: what.into() };
        let mut records = self.0.lock().expect("no panic");
        let known = records.families.insert(name.as_str().into(), family.clone());
        assert!(known.is_none_or(|known| known == family), "{name:?} has two descriptions");
    }

    fn register(&self, kind: &str, key: &Key) -> Arc<Series> {
        let labels = key.labels().map(|label| (label.key().into(), label.value().into()));
        let mut records = self.0.lock().expect("no panic");
        let family = records.families.get(key.name()).expect("the metric is described");
        assert_eq!(family.kind, kind, "{key}");
        let series = records.series.entry((key.name().into(), labels.collect()));
        series.or_default().clone()
    }

    pub(super) fn families(&self) -> BTreeMap<String, Family> {
        self.0.lock().expect("no panic").families.clone()
    }

    /// Returns the label sets of all series with this name.
    pub(super) fn labels(&self, name: &str) -> BTreeSet<Labels> {
        let records = self.0.lock().expect("no panic");
        let of_it = records.series.keys().filter(|(known, _)| known == name);
        of_it.map(|(_, labels)| labels.clone()).collect()
    }

    /// Returns all values of the series that have this name and these labels.
    pub(super) fn recorded(&self, name: &str, labels: &[(&str, &str)]) -> Vec<f64> {
        let records = self.0.lock().expect("no panic");
        let has = |of: &Labels| {
            labels.iter().all(|(key, value)| of.get(*key).is_some_and(|it| it == value))
        };
        let mut of_it =
            records.series.iter().filter(|((known, of), _)| known == name && has(of)).peekable();
        assert!(of_it.peek().is_some(), "there is no {name} with {labels:?}");
        of_it.flat_map(|(_, series)| series.recorded()).collect()
    }

    /// Returns the current value of a counter or gauge, summed over all series with these labels.
    pub(super) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.recorded(name, labels).iter().sum()
    }

    #[allow(clippy::cast_possible_truncation)] // Counts are small.
    pub(super) fn count(&self, name: &str, labels: &[(&str, &str)]) -> i64 {
        self.value(name, labels).round() as i64
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe("counter", &key, unit, &description);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe("gauge", &key, unit, &description);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe("histogram", &key, unit, &description);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.register("counter", key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.register("gauge", key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.register("histogram", key))
    }
}
