use super::*;

const TERM: Duration = Duration::from_mins(1);
const MS: u64 = 1_000_000;

/// The clocks of so many nodes, each by so many milliseconds ahead of where it began.
struct Nodes {
    skew: ClockSkew,
    ahead: Vec<u64>,
}

impl Nodes {
    fn new(nodes: usize) -> Self {
        let skew = ClockSkew::new(Quorum::majority(nodes), Drift::DEFAULT, TERM);
        let mut it = Self { skew, ahead: vec![0; nodes] };
        for node in 0..nodes {
            it.read(node, 1_000);
        }
        it
    }

    /// Reads a clock, all in milliseconds of ours.
    fn read(&mut self, node: usize, at: u64) -> Verdict {
        let shown_us = 1_700_000_000_000_000 + (at + self.ahead[node]) * 1_000;
        let [sent, received] = [at * MS, at * MS + MS / 2].map(Time::from_nanos);
        self.skew.handle_reading(NodeId::new(node), Reading { sent, shown_us, received })
    }

    /// How late what a node grants counts.
    fn late(&mut self, node: usize, at: u64) -> u128 {
        let counts_from = self.read(node, at).counts_from;
        counts_from.since(Time::from_nanos(at * MS + MS / 2)).as_millis()
    }
}

#[test]
fn our_clock_has_stood_still_if_all_that_are_read_say_so_alike() {
    let mut three = Nodes::new(3);
    three.ahead = vec![500; 3];
    for node in 0..2 {
        let verdict = three.read(node, 2_000);
        assert!(!verdict.stood_still, "not all have told");
        assert!(verdict.ahead.is_some_and(|ahead| ahead >= Duration::from_millis(499)));
    }
    let last = three.read(2, 2_000);
    assert!(last.stood_still && last.ahead.is_some());
    for node in 0..3 {
        assert!(three.late(node, 2_001) > 480, "all nodes can have stepped alike");
    }
}

#[test]
fn nodes_that_step_one_after_the_other_or_by_other_lengths_have_stepped() {
    let mut three = Nodes::new(3);
    for (node, at) in [(0, 1_500), (1, 1_900), (2, 2_300)] {
        // All are read all the time.
        for other in 0..3 {
            three.read(other, at - 1);
        }
        three.ahead[node] = 500;
        assert!(!three.read(node, at).stood_still, "{node}");
    }
    let mut two = Nodes::new(3);
    two.ahead = vec![500, 520, 500];
    assert!((0..3).all(|node| !two.read(node, 2_000).stood_still));
    let mut minority = Nodes::new(3);
    minority.ahead = vec![500, 500, 0];
    assert!((0..3).all(|node| !minority.read(node, 2_000).stood_still));
    assert!(minority.late(0, 2_001) > 480 && minority.late(2, 2_001) == 0);
}

#[test]
fn who_was_not_read_for_long_is_not_asked_and_one_alone_says_nothing() {
    let mut five = Nodes::new(5);
    for at in (2_000..20_000).step_by(5_000) {
        for node in 0..3 {
            five.read(node, at);
        }
    }
    five.ahead = vec![500; 5];
    let found: Vec<_> = (0..3).map(|node| five.read(node, 20_000).stood_still).collect();
    assert_eq!(found, [false, false, true]);
    let mut one = Nodes::new(1);
    one.ahead = vec![500];
    let verdict = one.read(0, 2_000);
    assert!(!verdict.stood_still && verdict.ahead.is_some());
    assert!(one.late(0, 2_001) > 480, "it may have been the node");
}
