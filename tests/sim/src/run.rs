//! Playing seeds.

use crate::mode::Mode;
use crate::rule::Rule;
use crate::scenario::Scenario;
use crate::watchdog::UnderWay;
use crate::world::World;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic;
use std::str::FromStr;
use std::sync::Once;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// The rule that was broken, and how.
    pub violation: Option<(Rule, String)>,
    /// What happened, as a number.
    pub hash: u64,
    /// What happened, in words, if that was asked for.
    pub trace: String,
    /// How many calls were made, and locks were had.
    pub calls: u64,
    /// Locks that were had.
    pub grants: u64,
    /// How many faults were planned.
    pub faults: u64,
    /// How often two leases of a resource were valid at a time.
    pub overlaps: u64,
    /// How often a token was not higher than that of a lease which had been handed out before.
    pub disorders: u64,
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// What has panicked on this thread since this was asked last.
pub(crate) fn take_panic() -> Option<String> {
    PANIC.take()
}

/// Every panic of a run is a finding, including those that the library catches. Other panics go to the hook
/// that was set before.
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

/// The parts of a run: which calls, and which faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The calls, by number.
    pub calls: Vec<usize>,
    /// The faults, by number.
    pub faults: Vec<usize>,
}

impl Parts {
    /// All that a seed has.
    pub fn of(mode: Mode, seed: u64) -> Self {
        let (calls, faults) = Scenario::draw(mode, seed).parts();
        Self { calls, faults }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.calls.len() + self.faults.len()
    }
}

/// `c1,c2,f7`: what [`FromStr`] reads.
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
            let number = |digits: &str| digits.parse().map_err(|_| format!("{word} is no part"));
            match word.split_at(1) {
                ("c", digits) => parts.calls.push(number(digits)?),
                ("f", digits) => parts.faults.push(number(digits)?),
                _ => return Err(format!("{word} is no part: c1 is a call, f1 a fault")),
            }
        }
        Ok(parts)
    }
}

/// Plays one seed; or only some parts of it.
pub fn run(mode: Mode, seed: u64, parts: Option<&Parts>, is_traced: bool) -> RunResult {
    notice_panics();
    let _under_way = UnderWay::new(mode, seed);
    let mut scenario = Scenario::draw(mode, seed);
    if let Some(parts) = parts {
        scenario = scenario.only(&parts.calls, &parts.faults);
    }
    let faults = scenario.faults.len() as u64;
    let mut world = World::new(scenario, is_traced);
    IS_RUNNING.set(true);
    let done = panic::catch_unwind(panic::AssertUnwindSafe(|| world.run()));
    IS_RUNNING.set(false);
    let mut books = world.checker.books();
    if let (Err(_), Some(what)) = (&done, take_panic()) {
        books.broken(Rule::NoPanic, what);
    }
    let (calls, grants, violation) = (books.calls, books.grants, books.violation.clone());
    let (overlaps, disorders) = (books.overlaps(), books.ledger.disorders);
    drop(books);
    let (hash, trace) = world.shared.lock().trace.finish();
    RunResult { violation, hash, trace, calls, grants, faults, overlaps, disorders }
}
