//! Tests that docs/METRICS.md describes exactly the existing metrics, and that the alerts use only documented metrics.

use super::HOUR;
use super::recorder::{Family, Recorder};
use crate::{SOON, builder, connected, eventually, is_down, ms};
use kit::Cluster;
use metrics::{Unit, set_default_local_recorder};
use quorlock::{ReleaseOutcome, RestartGuard};
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::timeout;

const METRICS: &str = include_str!("../../../docs/METRICS.md");
const ALERTS: &str = include_str!("../../../docs/alerts.yml");
const ALERT_TESTS: &str = include_str!("../../../docs/alerts.test.yml");

struct Row {
    kind: String,
    unit: String,
    labels: BTreeSet<String>,
    words: BTreeSet<String>,
}

fn quoted(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(ToOwned::to_owned).collect()
}

fn rows() -> BTreeMap<String, Row> {
    let rows = METRICS.lines().filter(|line| line.starts_with("| `quorlock_"));
    let row = |line: &str| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, unit, labels, text] = cells[..] else { panic!("five cells: {line}") };
        let (labels, words) = (quoted(labels), quoted(text));
        let row = Row { kind: kind.into(), unit: unit.into(), labels, words };
        (name.trim_matches('`').to_owned(), row)
    };
    rows.map(row).collect()
}

/// Updates every metric at least once.
async fn everything(recorder: &Recorder) {
    let cluster = Cluster::start(3);
    let settings = builder(&cluster).restart_guard(RestartGuard::Off).ttl(ms(6_000));
    let redlock = connected(settings).await;
    let kept = redlock.acquire("kept").class("job").auto_extend(HOUR).await.expect("free");
    kept.extend(HOUR / 2).await.expect("nodes are up");
    let lost = redlock.acquire("lost").class("job").auto_extend(HOUR).await.expect("free");
    let waits = timeout(ms(100), redlock.acquire("kept").class("job"));
    waits.await.expect_err("it is held");
    eventually("a lease is renewed", || {
        recorder.count("quorlock_renewals_total", &[("result", "renewed")]) > 0
    })
    .await;
    eventually("all nodes have the key", || cluster.all_have("kept")).await;
    cluster.iter().for_each(|node| {
        node.del("lost");
    });
    timeout(SOON, lost.lost()).await.expect("the loss is reported");
    cluster[2].kill();
    eventually("the node is down", || is_down(&redlock, 2)).await;
    assert_eq!(kept.release().await, Ok(ReleaseOutcome::Released), "two of three nodes reply");
    eventually("one release is pending", || recorder.count("quorlock_releases_owed", &[]) == 1)
        .await;
    eventually("an attempt to connect fails", || {
        recorder.count("quorlock_connect_failures_total", &[]) > 0
    })
    .await;
}

#[tokio::test]
async fn metrics_match_their_documentation() {
    let recorder = Recorder::default();
    let _guard = set_default_local_recorder(&recorder);
    everything(&recorder).await;
    let (rows, families) = (rows(), recorder.families());
    let names = |known: Vec<&String>| known.into_iter().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(families.keys().collect()), names(rows.keys().collect()));
    for (name, row) in &rows {
        let Family { kind, unit, meaning } = &families[name];
        assert_eq!(row.kind, *kind, "{name}");
        let is_secs = *unit == Some(Unit::Seconds);
        assert_eq!((row.unit == "s", name.ends_with("_seconds")), (is_secs, is_secs), "{name}");
        assert_eq!(name.ends_with("_total"), *kind == "counter", "{name}");
        assert!(meaning.ends_with('.'), "{name}: {meaning}");
        let moved = recorder.recorded(name, &[]);
        assert!(moved.iter().any(|value| *value != 0.0), "{name} was not updated");
        for labels in recorder.labels(name) {
            assert_eq!(labels.keys().cloned().collect::<BTreeSet<_>>(), row.labels, "{name}");
            let is_open = |label: &str| matches!(label, "class" | "node");
            let of_few = labels.iter().filter(|(label, _)| !is_open(label));
            for (label, value) in of_few {
                assert!(row.words.contains(value), "{name}: {label}={value} is not documented");
            }
        }
    }
}

/// Returns the metrics that the expressions in `text` use. Each metric is returned with the content of its braces.
fn used_metrics(text: &str) -> Vec<(String, String)> {
    let starts = text.match_indices("quorlock_").map(|(at, _)| &text[at..]);
    let used = starts.map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let braces = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let name = name.strip_suffix("_bucket").unwrap_or(name);
        (name.to_owned(), braces.map_or("", |(inside, _)| inside).to_owned())
    });
    used.collect()
}

#[test]
fn alerts_use_documented_metrics_and_have_tests() {
    let rows = rows();
    for (text, own) in [(ALERTS, [].as_slice()), (ALERT_TESTS, &["job", "instance", "le"])] {
        let used = used_metrics(text);
        assert!(used.len() > 10, "metrics not found: {used:?}");
        for (name, selectors) in used {
            let row = rows.get(&name).unwrap_or_else(|| panic!("{name} is not a metric"));
            for selector in selectors.split(", ").filter(|selector| !selector.is_empty()) {
                let (label, value) = selector.split_once('"').expect("a value");
                let label = label.trim_end_matches(['=', '!', '~']);
                assert!(row.labels.contains(label) || own.contains(&label), "{name}: {label}");
                let is_open = matches!(label, "class" | "node") || own.contains(&label);
                for value in value.trim_end_matches('"').split('|').filter(|_| !is_open) {
                    assert!(row.words.contains(value), "{name}: {label}={value}");
                }
            }
        }
    }
    let alerts = ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let alerts: Vec<_> = alerts.collect();
    assert_eq!(alerts.len(), 10, "{alerts:?}");
    for alert in alerts {
        assert!(METRICS.contains(&format!("| `{alert}` |")), "{alert} is not documented");
        for verdict in ["fires", "does not fire"] {
            let name = format!("- name: {alert} {verdict}\n");
            assert!(ALERT_TESTS.contains(&name), "{alert}: no test with the verdict: {verdict}");
        }
    }
}
