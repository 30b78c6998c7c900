//! Runs one seed.

use crate::counts::Counts;
use crate::mode::Mode;
use crate::rule::Rule;
use crate::scenario::Scenario;
use crate::watchdog::RunningSeed;
use crate::world::World;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic;
use std::str::FromStr;
use std::sync::Once;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// The violated rule and a description, or `None` if the run violated no rule.
    pub violation: Option<(Rule, String)>,
    /// A hash of all events. Runs with equal events have equal hashes.
    pub hash: u64,
    /// The trace if it was requested, or an empty string.
    pub trace: String,
    /// The number of calls to the library.
    pub calls: u64,
    /// The number of acquired locks.
    pub grants: u64,
    /// The number of planned faults.
    pub faults: u64,
    /// The number of pairs of leases that were valid for the same resource at the same time.
    pub overlaps: u64,
    /// The number of tokens that were not higher than the token of an earlier lease.
    pub disorders: u64,
    /// How often the conditions of rules were met.
    pub counts: Counts,
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Returns the last panic that the hook has recorded on this thread since the previous call, if
/// any.
pub(crate) fn take_panic() -> Option<String> {
    PANIC.take()
}

/// Installs a hook that records every panic of a run, including panics that the library catches.
/// Other panics go to the previous hook.
fn notice_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let is_injected = info.payload_as_str() == Some("panic injected by a test");
            if is_injected {
                // An injected panic is part of the run.
            } else if IS_RUNNING.get() {
                PANIC.set(Some(info.to_string()));
            } else {
                previous(info);
            }
        }));
    });
}

/// A selection of a run's calls and faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The numbers of the selected calls.
    pub calls: Vec<usize>,
    /// The numbers of the selected faults.
    pub faults: Vec<usize>,
}

impl Parts {
    /// Returns all calls and faults of a seed.
    pub fn of(mode: Mode, seed: u64) -> Self {
        let (calls, faults) = Scenario::draw(mode, seed).parts();
        Self { calls, faults }
    }

    pub(crate) fn len(&self) -> usize {
        self.calls.len() + self.faults.len()
    }
}

/// Writes the format that [`FromStr`] parses, such as `c1,c2,f7`.
impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls = self.calls.iter().map(|call| format!("c{call}"));
        let faults = self.faults.iter().map(|fault| format!("f{fault}"));
        f.write_str(&calls.chain(faults).collect::<Vec<_>>().join(","))
    }
}

impl FromStr for Parts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = Self { calls: Vec::new(), faults: Vec::new() };
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let number = |digits: &str| digits.parse().map_err(|_| format!("invalid part {word}"));
            match word.split_at(1) {
                ("c", digits) => parts.calls.push(number(digits)?),
                ("f", digits) => parts.faults.push(number(digits)?),
                _ => {
                    return Err(format!(
                        "invalid part {word}: expected a call such as c1 or a fault such as f1"
                    ));
                }
            }
        }
        Ok(parts)
    }
}

/// Runs one seed, or only the given `parts` of its scenario. If `is_traced` is true, the result
/// contains a trace.
pub fn run(mode: Mode, seed: u64, parts: Option<&Parts>, is_traced: bool) -> RunResult {
    notice_panics();
    let _running = RunningSeed::new(mode, seed);
    let mut scenario = Scenario::draw(mode, seed);
    if let Some(parts) = parts {
        scenario = scenario.only(&parts.calls, &parts.faults);
    }
    let faults = scenario.faults.len() as u64;
    let mut world = World::new(scenario, is_traced);
    IS_RUNNING.set(true);
    let done = panic::catch_unwind(panic::AssertUnwindSafe(|| world.run()));
    IS_RUNNING.set(false);
    let mut state = world.checker.state();
    if let (Err(_), Some(panic)) = (&done, take_panic()) {
        state.violated(Rule::NoPanic, panic);
    }
    let (calls, grants, violation) = (state.calls, state.grants, state.violation.clone());
    let (overlaps, disorders) = (state.overlaps(), state.ledger.disorders);
    state.met(Rule::NoPanic);
    state.met(Rule::Ends);
    let mut counts = state.counts.clone();
    counts.add_all(&world.shared.lock().counts);
    counts.retain(|rule| mode.checks(rule));
    drop(state);
    let (hash, trace) = world.shared.lock().trace.finish();
    RunResult { violation, hash, trace, calls, grants, faults, overlaps, disorders, counts }
}
