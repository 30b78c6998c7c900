//! Sample runs for tests of the page, generated from a seed.

use super::words::number;
use crate::record::{
    Breach, BreachKind, Call, End, Fault, Fencing, Hold, Overlap, Run, Setting, Stretch, Verb,
};

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const RESOURCES: u16 = 12;
const NEMESES: [(&str, bool); 8] = [
    ("cut a connection", true),
    ("delay replies", true),
    ("hang a client", true),
    ("hang a node", true),
    ("kill a node", true),
    ("lose replies", true),
    ("partition a client", true),
    ("restart a node empty", false),
];

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn small(&mut self, end: u16) -> u16 {
        u16::try_from(self.below(end.into())).unwrap()
    }

    /// Returns a random number that is usually near `low`, and rarely up to 128 times as large.
    fn skewed(&mut self, low: u64) -> u64 {
        let doublings = self.below(7).min(self.below(7)).min(self.below(7));
        (low << doublings) + self.below(low << doublings)
    }
}

pub(super) fn empty() -> Run {
    Run {
        setting: Setting {
            command: "cargo run --release -p quorlock-torture -- --seed 7301 --seconds 120".into(),
            seed: 7301,
            mode: "inside".into(),
            nodes: 5,
            clients: 4,
            resources: RESOURCES,
            lasted: 120 * SECOND,
            server: "Redis 7.0.15".into(),
            library: "quorlock 0.1.0".into(),
            machine: "8 processors, Linux 6.8.0".into(),
            made_at: "2025-03-14 09:26 UTC".into(),
        },
        stretches: vec![Stretch { nodes: 5, from: 0 }],
        ..Run::default()
    }
}

pub(super) fn clean(holds: u64, faults: u64) -> Run {
    let mut run = empty();
    let mut dice = Dice(run.setting.seed);
    for _ in 0..faults {
        let fault = fault(&mut dice, run.setting.lasted);
        run.faults.push(fault);
    }
    let period = run.setting.lasted * u64::from(RESOURCES) / holds.max(1);
    for nth in 0..holds {
        let resource = u16::try_from(nth % u64::from(RESOURCES)).unwrap();
        hold(&mut run, &mut dice, resource, nth / u64::from(RESOURCES) * period, period);
    }
    run
}

pub(super) fn fenced() -> Run {
    let mut run = clean(3_000, 60);
    run.setting.mode = "outside".into();
    let third = run.setting.lasted / 3;
    run.stretches = vec![
        Stretch { nodes: 1, from: 0 },
        Stretch { nodes: 3, from: third },
        Stretch { nodes: 5, from: 2 * third },
    ];
    let (first, second) = (run.holds[0].clone(), run.holds[12].clone());
    let under = vec![crate::record::WIPE.to_owned()];
    let breach =
        |kind| Breach { kind, first: first.clone(), second: second.clone(), under: under.clone() };
    let (from, until) = (first.from, first.from + MILLISECOND);
    let (nemesis, target) = (under[0].clone(), "all nodes".into());
    run.faults.push(Fault { nemesis, target, from, until, is_guaranteed: false });
    run.fencing = Fencing {
        tokens: 3_000,
        ordered: 2_345,
        accepted: 5_432,
        refused: 321,
        late: 1_234,
        slept_through: 98,
        excused: vec![breach(BreachKind::LowerToken), breach(BreachKind::HolderRefused)],
    };
    run
}

pub(super) fn dirty() -> Run {
    let mut run = clean(8_000, 120);
    let mut dice = Dice(1);
    for nth in [900_usize, 4_321, 7_000] {
        let first = run.holds[nth].clone();
        let mut second = first.clone();
        second.client = (first.client + 1) % 4;
        second.task = 3;
        second.from = first.from + (first.until - first.from) / 3 + dice.below(1_000);
        second.until = first.until + dice.skewed(900 * MICROSECOND);
        second.end = End::ValidUntil;
        let under = run.faults.iter().filter(|f| f.from <= second.from && first.from <= f.until);
        let mut under: Vec<_> = under.map(|fault| fault.nemesis.clone()).collect();
        under.sort();
        under.dedup();
        run.holds.push(second.clone());
        run.findings.overlaps.push(Overlap { first, second, under });
    }
    run.findings.lost_updates = 1;
    run.findings.overdue_calls = 2;
    for call in run.calls.iter_mut().rev().take(2) {
        call.until = call.from + 3 * call.bound;
        call.outcome = "timeout".into();
    }
    run.findings.others.push("client 2 ended with signal 11 at 48.2 s".into());
    run
}

fn fault(dice: &mut Dice, lasted: u64) -> Fault {
    let (nemesis, is_guaranteed) = NEMESES[usize::from(dice.small(7))];
    let target = if nemesis.ends_with("client") {
        format!("client {}", dice.below(4))
    } else {
        format!("node {}", dice.below(5))
    };
    let from = dice.below(lasted - 3 * SECOND);
    let until = from + dice.skewed(60 * MILLISECOND);
    Fault { nemesis: nemesis.into(), target, from, until, is_guaranteed }
}

/// Adds a hold that begins at a random time within the period, and the calls of its client.
fn hold(run: &mut Run, dice: &mut Dice, resource: u16, begin: u64, period: u64) {
    let took = dice.skewed(180 * MICROSECOND).min(period / 4);
    let from = begin + took + dice.below(period / 4);
    let long = (period / 16 + dice.below(period / 3)).max(1);
    let end = match dice.below(200) {
        0 => End::Lost,
        1 | 2 => End::ValidUntil,
        _ => End::Released,
    };
    let (client, task, is_renewed) = (dice.small(4), dice.small(8), dice.below(10) == 0);
    let (id, asked) = (number(run.holds.len()), from - took);
    let (token, until) = (Some(1_700_000_000_000_000 + from / MICROSECOND), from + long);
    let (shared_from, period) = (None, None);
    let by = Hold {
        resource,
        client,
        task,
        id,
        token,
        asked,
        from,
        until,
        end,
        is_renewed,
        shared_from,
        period,
    };
    run.holds.push(by);
    let mut call = |verb, from, took, bound, outcome: &str| {
        let outcome = outcome.into();
        run.calls.push(Call { verb, client, from, until: from + took, bound, outcome });
    };
    call(Verb::Acquire, from - took, took, 500 * MILLISECOND, "ok");
    let refusal = ["contended", "contended", "contended", "no quorum"][usize::from(dice.small(4))];
    call(Verb::Acquire, begin, (100 * took).min(400 * MILLISECOND), 500 * MILLISECOND, refusal);
    let took = dice.skewed(110 * MICROSECOND);
    if is_renewed {
        call(Verb::Extend, from + long / 2, took, 50 * MILLISECOND, "ok");
    }
    let outcome = if end == End::Released { "ok" } else { "expired" };
    call(Verb::Release, from + long, took, 50 * MILLISECOND, outcome);
}
