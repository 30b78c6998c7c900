//! Searches all settings and semaphores, and prints the results.

use model::{
    SearchReport, Semaphore, Setting, check_rebuilt_quarantine, guards, hand_over, safe_semaphores,
    safe_settings, search, search_semaphore, unsafe_semaphores, unsafe_settings,
};
use std::env;
use std::process::ExitCode;
use std::thread;

fn format_size(report: &SearchReport) -> String {
    let (states, depth, time) = (report.states, report.depth, report.time.as_secs_f64());
    format!("{states} states, depth {depth}, {time:.1} s")
}

fn print_lines<'a>(lines: impl IntoIterator<Item = &'a String>) {
    for line in lines {
        println!("    {line}");
    }
}

fn format_bounds(setting: &Setting) -> String {
    let (ttl, allowance) = (setting.ttl, setting.allowance);
    let attempts = setting.attempts;
    format!("attempts per client: {attempts}, ttl: {ttl} ticks, allowance for drift: {allowance}")
}

fn format_parameters(semaphore: &Semaphore) -> String {
    let Semaphore { clients, nodes, locks, places, quorum, .. } = semaphore;
    format!(
        "clients: {clients}, nodes: {nodes}, locks: {locks}, places per lock: {places}, quorum: {quorum}"
    )
}

/// The printed description of a search.
struct SearchText {
    name: &'static str,
    bounds: String,
    /// The state that is unreachable if the setting or semaphore is safe.
    forbidden: String,
}

impl From<&Setting> for SearchText {
    fn from(setting: &Setting) -> Self {
        let (bounds, forbidden) = (format_bounds(setting), "two holders".to_owned());
        Self { name: setting.name, bounds, forbidden }
    }
}

impl From<&Semaphore> for SearchText {
    fn from(semaphore: &Semaphore) -> Self {
        let forbidden = format!("{} holders", semaphore.permits() + 1);
        Self { name: semaphore.name, bounds: format_parameters(semaphore), forbidden }
    }
}

/// Prints the result for a safe setting or semaphore. Returns true if the search visited `states`
/// states, none of which is forbidden, and reached every goal. Another number of states means that
/// the model has changed.
fn print_safe(text: &SearchText, report: &SearchReport, states: usize) -> bool {
    let SearchText { name, bounds, forbidden } = text;
    match report.trace {
        None => println!("{name}: never {forbidden}\n    {bounds}"),
        Some(_) => println!("{name}: {}\n    {bounds}", forbidden.to_uppercase()),
    }
    println!("    {}", format_size(report));
    for (goal, depth) in &report.goals {
        match depth {
            Some(depth) => println!("    possible, first after {depth} steps: {goal}"),
            None => println!("    NEVER: {goal}"),
        }
    }
    print_lines(report.trace.iter().flatten());
    if report.states != states {
        println!("    EXPECTED {states} states");
    }
    println!();
    report.trace.is_none()
        && report.states == states
        && report.goals.iter().all(|(_, depth)| depth.is_some())
}

/// Prints the result for an unsafe setting or semaphore. Returns true if the search found a shortest
/// trace of `steps` steps to a forbidden state. Another number means that the model has changed.
fn print_unsafe(text: &SearchText, report: &SearchReport, steps: usize) -> bool {
    let SearchText { name, bounds, forbidden } = text;
    println!("{name}\n    {bounds}");
    let Some(trace) = &report.trace else {
        println!("    NOT FOUND in {}\n", format_size(report));
        return false;
    };
    println!("    {forbidden} in {} steps, found in {}:", trace.len(), format_size(report));
    print_lines(trace);
    if trace.len() != steps {
        println!("    EXPECTED a trace of {steps} steps");
    }
    println!();
    trace.len() == steps
}

/// Returns true if `name` contains the first command-line argument, or if there is no argument.
fn is_wanted(name: &str) -> bool {
    env::args().nth(1).is_none_or(|part| name.contains(&part))
}

/// Searches all settings and prints the results. Returns true if every result is as expected.
fn check_settings() -> bool {
    println!("SAFE SETTINGS\n");
    let settings: Vec<_> =
        safe_settings().into_iter().filter(|(it, _)| is_wanted(it.name)).collect();
    let searches: Vec<_> =
        settings.iter().map(|&(it, _)| thread::spawn(move || search(&it))).collect();
    let mut is_good = true;
    for ((setting, states), search) in settings.iter().zip(searches) {
        let report = search.join().expect("a search that does not panic");
        is_good &= print_safe(&setting.into(), &report, *states);
    }
    println!("UNSAFE SETTINGS\n");
    for (setting, steps) in unsafe_settings().iter().filter(|(it, _)| is_wanted(it.name)) {
        is_good &= print_unsafe(&setting.into(), &search(setting), *steps);
    }
    is_good
}

/// Searches all semaphores and prints the results. Returns true if every result is as expected.
fn check_semaphores() -> bool {
    let mut is_good = true;
    println!("SAFE SEMAPHORES\n");
    for (semaphore, states) in safe_semaphores().iter().filter(|(it, _)| is_wanted(it.name)) {
        is_good &= print_safe(&semaphore.into(), &search_semaphore(semaphore), *states);
    }
    println!("UNSAFE SEMAPHORES\n");
    for (semaphore, steps) in unsafe_semaphores().iter().filter(|(it, _)| is_wanted(it.name)) {
        is_good &= print_unsafe(&semaphore.into(), &search_semaphore(semaphore), *steps);
    }
    is_good
}

/// Prints a trace in which each client acquires the lock once. Returns true if it exists.
fn check_hand_over() -> bool {
    println!("The lock passes from one client to the other:");
    let trace = hand_over().unwrap_or_default();
    print_lines(&trace);
    println!();
    let acquires = |client: &str| {
        let acquired = format!("{client} HOLDS THE LOCK");
        trace.iter().filter(|step| step.contains(&acquired)).count()
    };
    acquires("A") == 1 && acquires("B") == 1
}

/// Compares the quarantines of all guards with quarantines that are rebuilt from a state. Returns
/// true if they are the same.
fn check_quarantines() -> bool {
    let is_same = |guard| match check_rebuilt_quarantine(guard, 7) {
        Ok(histories) if histories > 10_000 => true,
        Ok(histories) => {
            println!("TOO FEW histories of the quarantine: {histories}, {guard:?}");
            false
        }
        Err(difference) => {
            println!("NOT REBUILT from the state: {difference}, {guard:?}");
            false
        }
    };
    guards().into_iter().map(is_same).fold(true, |all, it| all & it)
}

fn main() -> ExitCode {
    let checks = [check_settings, check_hand_over, check_semaphores, check_quarantines];
    let is_good = checks.into_iter().map(|check| check()).fold(true, |all, it| all & it);
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
