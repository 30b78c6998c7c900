//! Tests of the public types that applications serialize as JSON for logs and monitoring.

use crate::{SOON, eventually, is_down, ms};
use kit::{Cluster, Server};
use quorlock::Redlock;
use serde_json::{Value, json, to_value};

fn names(object: &Value) -> Vec<&str> {
    object.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn text(what: &impl serde::Serialize) -> Value {
    to_value(what).expect("the value can be serialized")
}

/// Creates a client for nodes whose URLs contain a password. One of the three nodes is dead, and another stores a value
/// that is not a lock under the lock's key.
async fn scene(cluster: &Cluster) -> Redlock {
    cluster[1].cmd(&["HSET", "r", "no", "lock"]);
    cluster[2].kill();
    let urls = cluster.iter().map(|node| format!("redis://:topsecret@{}", node.addr()));
    let redlock = Redlock::builder().nodes(urls).node_timeout(ms(1_000)).metadata("worker-7");
    let redlock = redlock.build().expect("valid settings");
    tokio::time::timeout(SOON, redlock.ready())
        .await
        .expect("ready() resolves")
        .expect("two nodes are up");
    eventually("the dead node is down", || is_down(&redlock, 2)).await;
    redlock
}

#[tokio::test]
async fn public_types_serialize_without_values_and_passwords() {
    let cluster = Cluster::start_with(3, &Server::builder().password("topsecret"));
    let redlock = scene(&cluster).await;
    let value = "0123456789abcdef0123456789abcdef:worker-8";
    cluster[0].cmd(&["SET", "r", value, "PX", "60000"]);
    let name = |at: usize| cluster[at].addr().to_string();

    let status = text(&redlock.status("r").await.expect("two nodes reply"));
    assert_eq!(names(&status), ["needed", "nodes"]);
    let nodes = status["nodes"].as_array().expect("a list");
    for (at, state) in ["held", "foreign", "failed"].into_iter().enumerate() {
        let fields = ["detail", "eligibility", "latency_seconds", "name", "state"];
        assert_eq!(names(&nodes[at]), fields);
        assert_eq!((&nodes[at]["name"], &nodes[at]["state"]), (&json!(name(at)), &json!(state)));
    }
    let holder = &nodes[0]["detail"];
    assert_eq!((&holder["metadata"], &holder["hint"]), (&json!("worker-8"), &json!("012345")));
    let left = holder["ttl_seconds"].as_f64().expect("a number");
    assert!(left > 0.0 && left <= 60.0, "{left}");
    assert_eq!(nodes[1]["detail"], json!({"ttl_seconds": null}));
    assert_eq!(nodes[2]["detail"], json!({"kind": "unreachable", "detail": "connection refused"}));

    let refused = redlock.try_acquire("r").await.expect_err("two nodes refuse it");
    let report = text(refused.report().expect("the attempt has a report"));
    assert_eq!(names(&report), ["needed", "nodes", "retry_after_seconds"]);
    let votes = report["nodes"].as_array().expect("a list");
    let votes: Vec<_> = votes.iter().map(|node| node["vote"].clone()).collect();
    assert_eq!(votes, ["held", "held", "failed"]);

    let checks = text(&redlock.check().await.expect("two nodes reply"));
    assert_eq!(
        (&checks[0]["role"], &checks[0]["persistence"]),
        (&json!("master"), &json!("nothing"))
    );
    assert!(checks[0]["uptime_seconds"].is_number() && checks[2]["uptime_seconds"].is_null());
    let finding = &checks[0]["findings"][0];
    assert_eq!(
        (&finding["kind"], &finding["severity"]),
        (&json!("not_durable"), &json!("warning"))
    );
    assert!(finding["message"].as_str().is_some_and(|message| message.contains("restart")));
    let failure = json!({"kind": "unreachable", "detail": "connection refused"});
    assert_eq!(checks[2]["findings"][0]["failure"], failure);

    let infos = text(&redlock.nodes());
    assert_eq!(names(&infos[0]), ["eligibility", "name", "state", "version"]);
    assert_eq!(infos[0]["eligibility"], json!({"kind": "counted"}));
    assert_eq!((&infos[2]["state"], &infos[2]["detail"]), (&json!("down"), &failure));
    assert_eq!(infos[2]["eligibility"], json!({"kind": "unavailable"}));

    for json in [status, report, checks, infos] {
        let json = json.to_string();
        assert!(!json.contains(&value[..32]) && !json.contains("topsecret"), "{json}");
    }
}
