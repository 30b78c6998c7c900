//! `check`: what it prints, and its exit codes.

use crate::scene::Scene;
use kit::{Cluster, Server};

#[test]
fn findings_end_with_1_from_the_severity_that_is_asked_for() {
    let durable = Server::builder().durable();
    let nodes = Cluster::start_with(3, &durable);
    let mut scene = Scene::on(&nodes);
    let mut look = || {
        for options in [&[][..], &["--fail-on", "warning"]] {
            scene.run(&[&["check"], options].concat());
        }
    };
    look();
    nodes[1].cmd(&["CONFIG", "SET", "appendfsync", "everysec"]);
    look();
    nodes[2].cmd(&["CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", "allkeys-lru"]);
    look();
    nodes[2].kill();
    look();
    nodes[1].kill();
    look();
    scene.compare_with("check.txt");
}

#[test]
fn as_json_it_is_a_list_of_nodes() {
    let nodes = Cluster::start(3);
    nodes[2].kill();
    let mut scene = Scene::on(&nodes);
    let told = scene.run(&["check", "--json"]).out;
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let worst = told.as_array().expect("a list").iter().map(|node| &node["worst"]);
    assert_eq!(worst.collect::<Vec<_>>(), ["warning", "warning", "danger"]);
    scene.compare_with("check-json.txt");
}
