//! What a client tells, as JSON for logs and monitors.

use crate::{SOON, eventually, ms};
use kit::{Cluster, Server};
use quorlock::{NodeState, Redlock};
use serde_json::{Value, json, to_value};

/// The names in an object, in order.
fn names(object: &Value) -> Vec<&str> {
    object.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn text(what: &impl serde::Serialize) -> Value {
    to_value(what).expect("it can be written")
}

/// Three nodes with a password, of which one is dead and another holds something that is no lock.
async fn scene(cluster: &Cluster) -> Redlock {
    cluster[1].cmd(&["HSET", "r", "no", "lock"]);
    cluster[2].kill();
    let urls = cluster.iter().map(|node| format!("redis://:topsecret@{}", node.addr()));
    let redlock = Redlock::builder().nodes(urls).node_timeout(ms(1_000)).metadata("worker-7");
    let redlock = redlock.build().expect("good settings");
    let is_down = || matches!(redlock.nodes()[2].state(), NodeState::Down(_));
    tokio::time::timeout(SOON, redlock.ready()).await.expect("in time").expect("two are up");
    eventually("the dead one is found out", is_down).await;
    redlock
}

#[tokio::test]
async fn all_that_a_client_tells_can_be_written_and_has_no_value_and_no_password() {
    let cluster = Cluster::start_with(3, &Server::builder().password("topsecret"));
    let redlock = scene(&cluster).await;
    let value = "0123456789abcdef0123456789abcdef:worker-8";
    cluster[0].cmd(&["SET", "r", value, "PX", "60000"]);
    let name = |at: usize| cluster[at].addr().to_string();

    let status = text(&redlock.status("r").await.expect("two answer"));
    assert_eq!(names(&status), ["acquirable_in_seconds", "holder", "is_held", "needed", "nodes"]);
    assert_eq!((&status["is_held"], &status["needed"]), (&json!(false), &json!(2)));
    let nodes = status["nodes"].as_array().expect("a list");
    for (at, state) in ["held", "foreign", "failed"].into_iter().enumerate() {
        let fields =
            ["eligibility", "failure", "holder", "latency_seconds", "name", "state", "ttl_seconds"];
        assert_eq!(names(&nodes[at]), fields);
        assert_eq!((&nodes[at]["name"], &nodes[at]["state"]), (&json!(name(at)), &json!(state)));
    }
    assert_eq!(nodes[0]["holder"]["metadata"], "worker-8");
    let left = nodes[0]["ttl_seconds"].as_f64().expect("a number");
    assert!(left > 0.0 && left <= 60.0, "{left}");
    assert_eq!(nodes[1]["ttl_seconds"], Value::Null);
    assert_eq!(nodes[2]["failure"]["message"], "connection refused");

    let refused = redlock.try_acquire("r").await.expect_err("nobody can have it");
    let report = text(refused.report().expect("it was an attempt"));
    assert_eq!(names(&report), ["granted", "needed", "nodes", "retry_after_seconds"]);
    let votes = report["nodes"].as_array().expect("a list");
    let votes: Vec<_> = votes.iter().map(|node| node["vote"].clone()).collect();
    assert_eq!(votes, ["held", "held", "failed"]);

    let checks = text(&redlock.check().await.expect("two can be looked at"));
    assert_eq!(checks[0]["role"], "master");
    assert_eq!(checks[0]["persistence"], "nothing");
    assert_eq!((&checks[0]["worst"], &checks[2]["worst"]), (&json!("warning"), &json!("danger")));
    assert_eq!(checks[2]["findings"][0]["kind"], "unreachable");

    let infos = text(&redlock.nodes());
    let fields = ["eligibility", "evicting", "failure", "name", "state", "version"];
    assert_eq!(names(&infos[0]), fields);
    assert_eq!((&infos[0]["state"], &infos[2]["state"]), (&json!("up"), &json!("down")));
    assert_eq!(infos[0]["eligibility"]["kind"], "counted");

    for told in [status, report, checks, infos] {
        let told = told.to_string();
        assert!(!told.contains(&value[..32]) && !told.contains("topsecret"), "{told}");
    }
}
