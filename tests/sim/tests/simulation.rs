//! Tests that runs are reproducible, and that the parts of a run can be parsed.

use sim::{Mode, Parts, run, sweep};

#[test]
fn run_of_a_seed_is_the_same_on_every_thread() {
    for seed in 0..8 {
        let traces = [true, true].map(|traced| run(Mode::Promise, seed, None, traced));
        assert!(!traces[0].trace.is_empty());
        for (one, other) in traces[0].trace.lines().zip(traces[1].trace.lines()) {
            assert_eq!(one, other, "seed {seed}");
        }
        assert_eq!(traces[0].hash, traces[1].hash, "seed {seed}");
        let untraced = std::thread::spawn(move || run(Mode::Promise, seed, None, false).hash);
        assert_eq!(untraced.join().expect("no panic"), traces[0].hash, "seed {seed}");
    }
}

#[test]
fn sweep_is_independent_of_the_number_of_threads() {
    let [one, two] = [1, 2].map(|threads| sweep(Mode::Promise, 0..16, threads, false));
    assert_eq!((one.seeds, one.hash, one.grants), (two.seeds, two.hash, two.grants));
    assert!(one.findings.is_empty(), "{:?}", one.findings);
}

#[test]
fn parts_are_parsed_in_the_format_of_display() {
    let parts = Parts { calls: vec![1, 20], faults: vec![3] };
    assert_eq!(parts.to_string(), "c1,c20,f3");
    assert_eq!("c1,c20,f3".parse::<Parts>(), Ok(parts));
    for bad in ["x1", "c", "cc", "f-1"] {
        assert!(bad.parse::<Parts>().is_err(), "{bad}");
    }
}
