//! Tests of the HTML page.

use std::time::{Duration, Instant};

use super::{render, samples, words};
use crate::record::{Breach, BreachKind, Hold, Overlap, Run};

fn verdict(run: &Run) -> String {
    let page = render(run);
    let (_, rest) = page.split_once("<h1>").unwrap();
    let (_, rest) = rest.split_once("<span>").unwrap();
    rest.split_once("</span></h1>").unwrap().0.into()
}

fn json(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"run\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn clean_run_shows_numbers_of_tenures_and_faults() {
    assert_eq!(
        verdict(&samples::clean(4_800, 39)),
        "No two holders at once in 4,800 tenures under 39 faults"
    );
    assert_eq!(verdict(&samples::clean(1, 0)), "No two holders at once in 1 tenure without faults");
}

#[test]
fn heading_lists_the_findings() {
    let mut run = samples::dirty();
    assert_eq!(
        verdict(&run),
        "FINDINGS: 3 overlaps, 1 lost update, 2 overdue calls and 1 other finding"
    );
    run.findings.lost_updates = 0;
    run.findings.overdue_calls = 0;
    run.findings.others.clear();
    assert_eq!(verdict(&run), "FINDINGS: 3 overlaps");
}

#[test]
fn overlap_outside_the_guarantee_is_no_finding_but_a_panic_is() {
    let mut run = samples::dirty();
    run.setting.mode = "outside".into();
    run.findings.overdue_calls = 0;
    run.findings.others.clear();
    let words = verdict(&run);
    assert!(words.starts_with("Outside the guarantee: 3 overlaps and 1 lost update in"), "{words}");
    run.findings.panics = 1;
    assert!(verdict(&run).starts_with("FINDINGS: "));
}

#[test]
fn empty_run_has_no_result() {
    assert_eq!(verdict(&samples::empty()), "No lock was acquired: this run has no result");
    let mut run = samples::empty();
    run.findings.panics = 1;
    assert_eq!(verdict(&run), "FINDINGS: 1 panic");
}

#[test]
fn overlap_is_listed_with_both_holders_and_active_faults() {
    let run = samples::dirty();
    let page = render(&run);
    assert_eq!(page.matches("<dt>First holder</dt>").count(), 3);
    for Overlap { first, second, under } in &run.findings.overlaps {
        for Hold { client, task, from, .. } in [first, second] {
            let holder = format!("client {client}, task {task}: {}", words::at(*from));
            assert!(page.contains(&holder), "{holder}");
        }
        assert!(under.iter().all(|nemesis| page.contains(nemesis)));
    }
}

#[test]
fn fencing_violation_is_a_finding_in_both_modes() {
    let mut run = samples::fenced();
    let breach = &mut run.fencing.excused.remove(0);
    for (kind, words) in [
        (BreachKind::StaleWrite, "FINDINGS: 2 stale writes accepted"),
        (BreachKind::LowerToken, "FINDINGS: 2 tokens out of order"),
        (BreachKind::EqualTokens, "FINDINGS: 2 pairs of equal tokens"),
        (BreachKind::HolderRefused, "FINDINGS: 2 holders refused"),
    ] {
        breach.kind = kind;
        run.findings.breaches = vec![breach.clone(); 2];
        for mode in ["inside", "outside"] {
            run.setting.mode = mode.into();
            assert_eq!(verdict(&run), words, "{mode}");
        }
        let page = render(&run);
        assert_eq!(page.matches("<dt>Second holder</dt>").count(), 2);
        let token = format!("token {}", breach.second.token.unwrap());
        assert!(page.contains(&token) && page.contains(kind.names().0), "{token}");
    }
}

#[test]
fn fencing_section_explains_refused_writes() {
    let mut run = samples::fenced();
    let page = render(&run);
    for words in ["320 late writes were refused", "1 holder was refused", "at once 1 time"] {
        assert!(page.contains(words), "{words}");
    }
    assert!(page.contains("1 violation was detected"), "after the wipe");
    assert!(verdict(&run).starts_with("No two holders"), "no findings");
    run.fencing.tokens = 0;
    assert!(render(&run).contains("No lock was acquired with a fencing token"));
}

#[test]
fn timeline_marks_changes_of_the_number_of_nodes() {
    let page = render(&samples::fenced());
    assert!(page.contains("<dt>Nodes</dt><dd>1, 3 and 5</dd>"));
    for nodes in [">1 node</text>", ">3 nodes</text>", ">5 nodes</text>"] {
        assert!(page.contains(nodes), "{nodes}");
    }
    assert_eq!(json(&page)["changes"], serde_json::json!([1, 0, 3, 40_000_000, 5, 80_000_000]));
    let page = render(&samples::clean(10, 5));
    assert!(page.contains("<dt>Nodes</dt><dd>5</dd>") && !page.contains(">5 nodes</text>"));
}

#[test]
fn text_from_a_run_is_escaped() {
    const HOSTILE: &str = "</script><script>alert('1')</script>&\"<!--\u{202e}";
    let mut run = samples::dirty();
    for fault in &mut run.faults {
        fault.nemesis = HOSTILE.into();
        fault.target = HOSTILE.into();
    }
    for call in &mut run.calls {
        call.outcome = HOSTILE.into();
    }
    run.findings.overlaps[0].under = vec![HOSTILE.into()];
    let Overlap { first, second, under } = run.findings.overlaps[0].clone();
    run.findings.breaches = vec![Breach { kind: BreachKind::StaleWrite, first, second, under }];
    run.findings.others = vec![HOSTILE.into()];
    let setting = &mut run.setting;
    for text in [
        &mut setting.command,
        &mut setting.mode,
        &mut setting.server,
        &mut setting.library,
        &mut setting.machine,
        &mut setting.made_at,
    ] {
        *text = HOSTILE.into();
    }
    let page = render(&run);
    assert!(!page.contains("<script>alert"));
    assert!(!page.contains("<!--"));
    assert_eq!(page.matches("</script>").count(), 2);
    assert_eq!(json(&page)["nemeses"][0]["name"], HOSTILE);
}

#[test]
fn page_has_no_external_resources() {
    let page = render(&samples::dirty());
    for part in ["http:", "https:", " src=", " href=", "url(", "@import", "fetch(", "import("] {
        assert!(!page.contains(part), "{part}");
    }
}

#[test]
fn embedded_data_contains_the_whole_run() {
    let run = samples::dirty();
    let data = json(&render(&run));
    let flat = |rows: &serde_json::Value, name: &str| -> Vec<u64> {
        let rows = rows.as_array().unwrap().iter();
        rows.flat_map(|row| row[name].as_array().unwrap()).map(|n| n.as_u64().unwrap()).collect()
    };
    assert_eq!(flat(&data["rows"], "holds").len(), run.holds.len() * 4);
    assert_eq!(flat(&data["targets"], "faults").len(), run.faults.len() * 4);
    assert_eq!(data["overlaps"].as_array().unwrap().len(), 3 * 6);
    let of_row = |resource: u16| -> Vec<u64> {
        let mut all: Vec<_> = run.holds.iter().filter(|hold| hold.resource == resource).collect();
        all.sort_by_key(|hold| hold.from);
        all.into_iter().map(|hold| hold.from / 1_000).collect()
    };
    for row in data["rows"].as_array().unwrap() {
        let mut before = 0;
        let steps =
            row["holds"].as_array().unwrap().chunks(4).map(|hold| hold[0].as_u64().unwrap());
        let froms: Vec<_> = steps
            .map(|step| {
                before += step;
                before
            })
            .collect();
        assert_eq!(froms, of_row(u16::try_from(row["resource"].as_u64().unwrap()).unwrap()));
    }
}

#[test]
fn page_of_a_long_run_is_small_and_fast_to_render() {
    let run = samples::clean(100_000, 1_000);
    let began = Instant::now();
    let page = render(&run);
    assert!(page.len() < 8_000_000, "{} bytes", page.len());
    assert!(began.elapsed() < Duration::from_mins(1), "{:?}", began.elapsed());
}

#[test]
fn runs_with_invalid_times_are_rendered() {
    let mut run = samples::clean(10, 5);
    run.setting.lasted = 0;
    run.setting.resources = 0;
    render(&run);
    // All holds have the same time and no length, and one of them ends before it starts.
    for hold in &mut run.holds {
        (hold.from, hold.until) = (5, 5);
    }
    run.holds[0].until = 0;
    for fault in &mut run.faults {
        (fault.from, fault.until) = (7, 3);
    }
    for call in &mut run.calls {
        (call.from, call.until) = (1, 0);
    }
    render(&run);
    let (first, second) = (run.holds[0].clone(), run.holds[1].clone());
    run.findings.overlaps = vec![Overlap { first, second, under: Vec::new() }];
    run.holds.clear();
    render(&run);
    run.holds = vec![run.findings.overlaps[0].first.clone()];
    (run.holds[0].from, run.holds[0].until) = (u64::MAX / 8, u64::MAX / 4);
    render(&run);
}

#[test]
fn heading_levels_are_in_order() {
    let page = render(&samples::dirty());
    let mut before = 0;
    for heading in page.split("<h").skip(1) {
        let Some(level) = heading.chars().next().and_then(|char| char.to_digit(10)) else {
            continue;
        };
        assert!(level <= before + 1, "h{level} after h{before}");
        before = level;
    }
    assert_eq!(page.matches("<h1>").count(), 1);
}

#[test]
fn numbers_and_times_are_formatted() {
    assert_eq!(words::count(1_234_567), "1,234,567");
    assert_eq!(words::count(12), "12");
    let took = [999, 1_234, 45_678, 999_999_999, 1_500_000_000, 120_000_000_000].map(words::took);
    assert_eq!(took, ["999 ns", "1.23 µs", "45.6 µs", "999 ms", "1.50 s", "2 min 0 s"]);
    assert_eq!(words::at(12_345_678_901), "12.345678 s");
    assert_eq!(
        [words::share(1, 8), words::share(1, 9_000), words::share(1, 0)],
        ["12.5 %", "< 0.1 %", "–"]
    );
}

#[test]
fn percentile_is_the_nearest_rank() {
    let sorted: Vec<_> = (1..=1_000).collect();
    let of = |permille| super::latency::percentile(&sorted, permille);
    assert_eq!([of(0), of(500), of(990), of(999), of(1_000)], [1, 500, 990, 999, 1_000]);
    assert_eq!(super::latency::percentile(&[7], 999), 7);
}

#[test]
#[ignore = "writes sample pages to the directory in PAGES"]
fn write_sample_pages() {
    let directory = std::path::PathBuf::from(std::env::var("PAGES").unwrap());
    let mut crowded = samples::clean(20_000, 40);
    for (hold, resource) in crowded.holds.iter_mut().zip((0..300).cycle()) {
        hold.resource = resource;
    }
    let mut outside = samples::dirty();
    outside.setting.mode = "outside".into();
    outside.faults.iter_mut().for_each(|fault| fault.is_guaranteed = fault.nemesis.len() > 12);
    outside.findings.overdue_calls = 0;
    outside.findings.others.clear();
    for (name, run) in [
        ("crowded", crowded),
        ("outside", outside),
        ("clean", samples::clean(50_000, 300)),
        ("dirty", samples::dirty()),
        ("fenced", samples::fenced()),
        ("empty", samples::empty()),
        ("long", samples::clean(100_000, 1_000)),
    ] {
        let began = Instant::now();
        let page = render(&run);
        eprintln!("{name}: {} bytes in {:?}", page.len(), began.elapsed());
        std::fs::write(directory.join(name).with_extension("html"), page).unwrap();
    }
}
