//! Tests that the torture program has no findings without a defect, and detects intentional
//! defects.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, PoisonError};

/// Allows only one run at a time, because each run loads the machine.
static TURN: Mutex<()> = Mutex::new(());

/// Runs the program. Returns its exit status, its findings and the whole record.
fn run(name: &str, args: &[&str]) -> (ExitStatus, Value, Value) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&out);
    let mut torture = Command::new(env!("CARGO_BIN_EXE_quorlock-torture"));
    let torture = torture.args(["--seed", "11", "--nodes", "3", "--out"]).arg(&out).args(args);
    let status = torture.status().expect("the program starts");
    let failed = fs::read_dir(&out).expect("the output directory exists").flatten();
    let failed = failed.map(|entry| entry.path()).find(|path| path.is_dir());
    assert_eq!(failed.is_some(), !status.success(), "only a failed run has its own directory");
    for node in failed
        .iter()
        .flat_map(|failed| (0..3).map(move |node| failed.join(format!("3-nodes/node-{node}"))))
    {
        assert!(node.join("redis.log").is_file(), "{}", node.display());
    }
    let record = failed.unwrap_or(out).join("run-11.json");
    let record = fs::read(record).expect("the run leaves a record");
    let record: Value = serde_json::from_slice(&record).expect("the record is JSON");
    (status, record["findings"].clone(), record)
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

fn kinds(findings: &Value) -> BTreeSet<&str> {
    let breaches = findings["breaches"].as_array().expect("a list").iter();
    breaches.map(|breach| breach["kind"].as_str().expect("a name")).collect()
}

fn count(list: &Value) -> usize {
    list.as_array().expect("a list").len()
}

#[test]
fn run_within_guarantee_has_no_findings() {
    let (status, findings, record) = run("inside", &["--seconds", "10"]);
    assert!(status.success(), "{findings:#}");
    assert!(count(&record["holds"]) > 50, "there were locks");
    assert!(count(&record["faults"]) > 5, "and faults");
    assert!(count(&record["calls"]) > count(&record["holds"]), "and calls");
    let calls = record["calls"].as_array().expect("a list");
    for (verb, least) in [
        ("Acquire", 20),
        ("AcquireAny", 20),
        ("AcquirePermit", 20),
        ("AcquireRead", 10),
        ("AcquireWrite", 5),
        ("Downgrade", 0),
        ("StartJob", 5),
        ("Campaign", 5),
    ] {
        let acquired = calls.iter().filter(|call| call["verb"] == verb && call["outcome"] == "ok");
        assert!(acquired.count() > least, "{verb}");
    }
    let fencing = &record["fencing"];
    assert!(number(&fencing["tokens"]) > 50 && number(&fencing["ordered"]) > 50, "{fencing:#}");
    let is_fenced = |hold: &Value| !hold["token"].is_null();
    let holds = record["holds"].as_array().expect("a list");
    assert!(holds.iter().any(is_fenced) && !holds.iter().all(is_fenced), "both kinds of locks");
    assert!(number(&fencing["late"]) > 0, "late writes");
    assert!(number(&fencing["refused"]) > 0, "refused writes: {fencing:#}");
    assert!(number(&fencing["accepted"]) > number(&fencing["refused"]), "{fencing:#}");
}

#[test]
fn client_without_the_lock_is_detected() {
    let (status, findings, _) = run("sabotage", &["--seconds", "3", "--sabotage"]);
    assert_eq!(status.code(), Some(1));
    assert!(count(&findings["overlaps"]) > 0, "{findings:#}");
    assert!(number(&findings["lost_updates"]) > 0, "{findings:#}");
    // The client without the lock guesses tokens, so writes of the real holders are refused.
    assert!(kinds(&findings).contains("HolderRefused"), "{findings:#}");
}

#[test]
fn client_with_forged_tokens_is_detected_in_both_modes() {
    for mode in ["inside", "outside"] {
        let (status, findings, _) =
            run("tokens", &["--seconds", "3", "--sabotage", "token", "--mode", mode]);
        assert_eq!(status.code(), Some(1), "{mode}");
        assert!(kinds(&findings).contains("LowerToken"), "{mode}: {findings:#}");
    }
}

#[test]
fn client_with_too_many_permits_is_detected() {
    let (status, findings, _) = run("permits", &["--seconds", "5", "--sabotage", "permits"]);
    assert_eq!(status.code(), Some(1));
    let overlaps = findings["overlaps"].as_array().expect("a list");
    // Each permit has one holder, but the semaphore has too many.
    assert!(!overlaps.is_empty(), "{findings:#}");
    for overlap in overlaps {
        assert_ne!(overlap["first"]["resource"], overlap["second"]["resource"], "{overlap:#}");
    }
    assert_eq!((&findings["lost_updates"], kinds(&findings).len()), (&0.into(), 0), "{findings:#}");
}

#[test]
fn client_with_other_keys_is_detected_for_each_kind_of_lock() {
    let (status, findings, record) = run("prefix", &["--seconds", "5", "--sabotage", "prefix"]);
    assert_eq!(status.code(), Some(1));
    let overlaps = findings["overlaps"].as_array().expect("a list");
    let is_reader =
        |hold: &Value| !hold["shared_from"].is_null() && hold["shared_from"] == hold["from"];
    let readers = |overlap: &Value| [is_reader(&overlap["first"]), is_reader(&overlap["second"])];
    let has = |expected| overlaps.iter().any(|overlap| readers(overlap) == expected);
    assert!(has([true, false]) && has([false, true]) && !has([true, true]), "{findings:#}");
    // The last two resources are elections.
    let first = number(&record["setting"]["resources"]) - 2;
    let is_election = |overlap: &Value| number(&overlap["first"]["resource"]) >= first;
    assert!(overlaps.iter().any(is_election), "{findings:#}");
    let others = findings["others"].as_array().expect("a list").iter();
    let mut others = others.map(|other| other.as_str().expect("a text"));
    assert!(others.any(|other| other.contains("ran again in its period")), "{findings:#}");
}

#[test]
fn overlaps_outside_the_guarantee_are_no_failure() {
    let (status, findings, record) = run("outside", &["--seconds", "3", "--mode", "outside"]);
    assert!(status.success(), "{findings:#}");
    assert_eq!(record["setting"]["mode"], "outside");
}
