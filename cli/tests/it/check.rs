//! Tests of the output and exit codes of `check`.

use crate::shell_session::ShellSession;
use kit::{Cluster, Server};

#[test]
fn exit_code_depends_on_fail_on() {
    let durable = Server::builder().durable();
    let nodes = Cluster::start_with(3, &durable);
    let mut session = ShellSession::on(&nodes);
    let mut check = || {
        for options in [&[][..], &["--fail-on", "warning"]] {
            session.run(&[&["check"], options].concat());
        }
    };
    check();
    nodes[1].cmd(&["CONFIG", "SET", "appendfsync", "everysec"]);
    check();
    nodes[2].cmd(&["CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", "allkeys-lru"]);
    check();
    nodes[2].kill();
    check();
    nodes[1].kill();
    check();
    session.compare_with("check.txt");
}

/// The server replies to the check, but clients without the password cannot set a lock.
#[test]
fn wrong_password_is_reported_as_such() {
    let nodes = Cluster::start_with(1, &Server::builder().password("right"));
    let url = nodes[0].url_with_auth().replace("right", "wrong");
    let ended = ShellSession::default().with("QUORLOCK_NODES", &url).execute(&["check"]);
    assert_eq!(ended.code, 69, "{}", ended.err);
    assert!(ended.out.contains("danger: cannot be used: WRONGPASS"), "{}", ended.out);
}

#[test]
fn json_is_an_array_of_nodes() {
    let nodes = Cluster::start(3);
    nodes[2].kill();
    let mut session = ShellSession::on(&nodes);
    let json = session.run(&["check", "--json"]).out;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let first =
        json.as_array().expect("a list").iter().map(|node| &node["findings"][0]["severity"]);
    assert_eq!(first.collect::<Vec<_>>(), ["warning", "warning", "danger"]);
    session.compare_with("check-json.txt");
}
