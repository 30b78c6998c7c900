//! Searches all settings, and prints what was found.

use model::{
    SearchReport, Setting, guards, hand_over, rehearse, safe_settings, search, unsafe_settings,
};
use std::env;
use std::process::ExitCode;
use std::thread;

fn numbers(report: &SearchReport) -> String {
    let (states, depth, time) = (report.states, report.depth, report.time.as_secs_f64());
    format!("{states} states, depth {depth}, {time:.1} s")
}

fn print_lines<'a>(lines: impl IntoIterator<Item = &'a String>) {
    for line in lines {
        println!("    {line}");
    }
}

fn bounds(setting: &Setting) -> String {
    let (ttl, allowance) = (setting.ttl, setting.allowance);
    let attempts = setting.attempts;
    format!("attempts per client: {attempts}, ttl: {ttl} ticks, allowance for drift: {allowance}")
}

/// Prints one safe setting; true if it is as it should be.
fn print_safe(setting: &Setting, report: &SearchReport) -> bool {
    let verdict = if report.trace.is_none() { "never two holders" } else { "TWO HOLDERS" };
    println!("{}: {verdict}\n    {}", setting.name, bounds(setting));
    println!("    {}", numbers(report));
    for (what, depth) in &report.sometimes {
        match depth {
            Some(depth) => println!("    possible, first after {depth} steps: {what}"),
            None => println!("    NEVER: {what}"),
        }
    }
    print_lines(report.trace.iter().flatten());
    println!();
    report.trace.is_none() && report.sometimes.iter().all(|(_, depth)| depth.is_some())
}

/// Prints one unsafe setting; true if it was caught.
fn print_unsafe(setting: &Setting, report: &SearchReport) -> bool {
    println!("{}\n    {}", setting.name, bounds(setting));
    let Some(trace) = &report.trace else {
        println!("    NOT FOUND in {}\n", numbers(report));
        return false;
    };
    println!("    two holders in {} steps, found in {}:", trace.len(), numbers(report));
    print_lines(trace);
    println!();
    true
}

/// Those whose names contain what was asked for; all, if nothing was.
fn wanted(settings: impl IntoIterator<Item = Setting>) -> Vec<Setting> {
    let part = env::args().nth(1).unwrap_or_default();
    settings.into_iter().filter(|setting| setting.name.contains(&part)).collect()
}

fn main() -> ExitCode {
    let mut is_good = true;
    println!("WITHIN THE PROMISE\n");
    let settings = wanted(safe_settings());
    let searches: Vec<_> =
        settings.iter().copied().map(|it| thread::spawn(move || search(&it))).collect();
    for (setting, search) in settings.iter().zip(searches) {
        is_good &= print_safe(setting, &search.join().expect("a search that ends"));
    }
    let hand_over = hand_over();
    is_good &= hand_over.is_some();
    println!("The lock goes from one client to the other:");
    print_lines(hand_over.iter().flatten());
    println!("\nBEYOND THE PROMISE, OR WITH A RULE BROKEN\n");
    for setting in wanted(unsafe_settings()) {
        is_good &= print_unsafe(&setting, &search(&setting));
    }
    for guard in guards() {
        if let Err(what) = rehearse(guard, 7) {
            println!("NOT REMEMBERED by a state: {what}, {guard:?}");
            is_good = false;
        }
    }
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
