//! Searches all settings and prints the results.

use model::{
    SearchReport, Setting, check_rebuilt_quarantine, guards, hand_over, safe_settings, search,
    unsafe_settings,
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

/// Prints the result for a safe setting. Returns true if mutual exclusion holds and every goal is
/// reached.
fn print_safe(setting: &Setting, report: &SearchReport) -> bool {
    let verdict = if report.trace.is_none() { "never two holders" } else { "TWO HOLDERS" };
    println!("{}: {verdict}\n    {}", setting.name, format_bounds(setting));
    println!("    {}", format_size(report));
    for (goal, depth) in &report.goals {
        match depth {
            Some(depth) => println!("    possible, first after {depth} steps: {goal}"),
            None => println!("    NEVER: {goal}"),
        }
    }
    print_lines(report.trace.iter().flatten());
    println!();
    report.trace.is_none() && report.goals.iter().all(|(_, depth)| depth.is_some())
}

/// Prints the result for an unsafe setting. Returns true if the search found two holders.
fn print_unsafe(setting: &Setting, report: &SearchReport) -> bool {
    println!("{}\n    {}", setting.name, format_bounds(setting));
    let Some(trace) = &report.trace else {
        println!("    NOT FOUND in {}\n", format_size(report));
        return false;
    };
    println!("    two holders in {} steps, found in {}:", trace.len(), format_size(report));
    print_lines(trace);
    println!();
    true
}

/// Returns the settings whose names contain the first command-line argument. Without an argument,
/// returns all settings.
fn wanted(settings: impl IntoIterator<Item = Setting>) -> Vec<Setting> {
    let part = env::args().nth(1).unwrap_or_default();
    settings.into_iter().filter(|setting| setting.name.contains(&part)).collect()
}

fn main() -> ExitCode {
    let mut is_good = true;
    println!("SAFE SETTINGS\n");
    let settings = wanted(safe_settings());
    let searches: Vec<_> =
        settings.iter().copied().map(|it| thread::spawn(move || search(&it))).collect();
    for (setting, search) in settings.iter().zip(searches) {
        is_good &= print_safe(setting, &search.join().expect("a search that does not panic"));
    }
    let hand_over = hand_over();
    is_good &= hand_over.is_some();
    println!("The lock passes from one client to the other:");
    print_lines(hand_over.iter().flatten());
    println!("\nUNSAFE SETTINGS\n");
    for setting in wanted(unsafe_settings()) {
        is_good &= print_unsafe(&setting, &search(&setting));
    }
    for guard in guards() {
        if let Err(difference) = check_rebuilt_quarantine(guard, 7) {
            println!("NOT REBUILT from the state: {difference}, {guard:?}");
            is_good = false;
        }
    }
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
