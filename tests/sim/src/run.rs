//! Execution of one seed.

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

/// Result of a run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// The violated rule, and a description.
    pub violation: Option<(Rule, String)>,
    /// Hash of all events.
    pub hash: u64,
    /// The trace, if it was requested.
    pub trace: String,
    /// Number of calls.
    pub calls: u64,
    /// Number of acquired locks.
    pub grants: u64,
    /// Number of planned faults.
    pub faults: u64,
    /// Number of pairs of leases of a resource that were valid at the same time.
    pub overlaps: u64,
    /// Number of tokens that were not higher than the token of an earlier lease.
    pub disorders: u64,
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Takes the last panic of this thread since the previous call.
pub(crate) fn take_panic() -> Option<String> {
    PANIC.take()
}

/// Records every panic of a run as a finding, including those that the library catches. Other
/// panics go to the previous hook.
fn notice_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let is_injected = info.payload_as_str() == Some("panic injected by a test");
            if is_injected {
                // Part of the run.
            } else if IS_RUNNING.get() {
                PANIC.set(Some(info.to_string()));
            } else {
                previous(info);
            }
        }));
    });
}

/// A part of a run: some of its calls and faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Numbers of the calls.
    pub calls: Vec<usize>,
    /// Numbers of the faults.
    pub faults: Vec<usize>,
}

impl Parts {
    /// All calls and faults of a seed.
    pub fn of(mode: Mode, seed: u64) -> Self {
        let (calls, faults) = Scenario::draw(mode, seed).parts();
        Self { calls, faults }
    }

    pub(crate) fn len(&self) -> usize {
        self.calls.len() + self.faults.len()
    }
}

/// The format of [`FromStr`], such as `c1,c2,f7`.
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

/// Runs one seed, or only some of its parts.
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
    drop(state);
    let (hash, trace) = world.shared.lock().trace.finish();
    RunResult { violation, hash, trace, calls, grants, faults, overlaps, disorders }
}
