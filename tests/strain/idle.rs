//! Tests of the CPU time of idle clients.
#![cfg(target_os = "linux")]

use crate::{SOON, all_up, client, eventually, ms, multi_thread};
use kit::{Cluster, Rerun};
use std::fs;
use std::time::{Duration, Instant};

/// Returns the CPU time of this process, with a resolution of 10 ms.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux has it");
    let fields = stat.rsplit(')').next().expect("a name in parentheses");
    let ticks = |place: usize| -> u64 {
        fields.split_whitespace().nth(place).and_then(|it| it.parse().ok()).expect("a number")
    };
    ms(10 * (ticks(11) + ticks(12)))
}

#[test]
#[ignore = "run by the next test, in its own process"]
fn thousand_idle_clients_in_own_process() {
    let cluster = Cluster::start(5);
    multi_thread(2).block_on(async {
        let clients: Vec<_> = (0..1_000).map(|_| client(&cluster)).collect();
        for some in clients.chunks(50) {
            for redlock in some {
                redlock.ready().await.expect("nodes are up");
            }
            eventually("all nodes are up", || some.iter().all(all_up)).await;
        }
        // Wait until the set-up of all connections has ended.
        tokio::time::sleep(ms(6_000)).await;
        let (begun, before) = (Instant::now(), processor_time());
        tokio::time::sleep(ms(20_000)).await;
        let cores = processor_time().saturating_sub(before).div_duration_f64(begun.elapsed());
        println!("1,000 idle clients of five nodes use {cores:.4} cores");
        // An optimised build uses 0.08 cores on a busy machine.
        assert!(cores < 0.8, "{cores} cores");
    });
}

#[test]
fn thousand_idle_clients_use_little_processor_time() {
    let test = "idle::thousand_idle_clients_in_own_process";
    let rerun = Rerun::start(&["--ignored", "--exact", test, "--nocapture"], &[]);
    rerun.finish(6 * SOON);
    let output = rerun.output();
    let line = output.lines().find(|line| line.contains("cores")).expect("it is printed");
    println!("{line}");
}
