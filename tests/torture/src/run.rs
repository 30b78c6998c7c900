//! A whole run: its parts, its verdict and what it leaves behind.

use crate::args::{Mode, Wish};
use crate::boot;
use crate::page;
use crate::part::{CLIENTS, Outcome, Part, RESOURCES};
use crate::plan::Field;
use crate::record::{Fencing, Findings, Run, Setting, Stretch};
use crate::verdict;
use clap::ValueEnum;
use std::fs;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

/// The numbers of nodes of a run that is not told how many.
const SIZES: [u16; 3] = [1, 3, 5];

/// Makes a run as wished; fails if something was found inside the promise, or if fencing failed.
pub(crate) fn run(wish: &Wish) -> ExitCode {
    let seed = wish.seed.unwrap_or_else(|| rand::random_range(0..1_000_000));
    let sizes = wish.nodes.map_or_else(|| SIZES.to_vec(), |nodes| vec![nodes]);
    let parts = u32::try_from(sizes.len()).expect("a handful");
    let command = command(wish, seed);
    println!("{command}");
    let origin = boot::now();
    let mut record: Option<Run> = None;
    let mut tally = verdict::Counted::default();
    for (number, nodes) in (0..).zip(&sizes) {
        let lasts = Duration::from_secs(wish.seconds) / parts;
        let is_inside = wish.mode == Mode::Inside;
        // So a run of several parts has all ways of what comes in turns, and the next seed the others.
        let turn = seed + u64::from(number);
        let field = Field { nodes: *nodes, clients: CLIENTS, lasts, is_inside, turn };
        let (program, sabotage) = (wish.server.clone(), wish.sabotage);
        let part = Part { number, seed, field, program, origin, sabotage };
        let from = boot::now() - origin;
        let outcome = part.run();
        tally.count(&outcome);
        let run = record.get_or_insert_with(|| Run {
            setting: setting(wish, seed, &command, &outcome.server),
            stretches: Vec::new(),
            holds: Vec::new(),
            faults: Vec::new(),
            calls: Vec::new(),
            fencing: Fencing::default(),
            findings: Findings::default(),
        });
        run.setting.nodes = run.setting.nodes.max(*nodes);
        run.stretches.push(Stretch { nodes: *nodes, from });
        join(run, outcome);
    }
    let mut run = record.expect("there is a part");
    run.setting.lasted = boot::now() - origin;
    verdict::print(&run, &tally);
    if let Err(error) = leave(wish, &run) {
        eprintln!("the records cannot be written to {}: {error}", wish.out.display());
        return ExitCode::FAILURE;
    }
    let is_broken = wish.mode == Mode::Inside && !run.findings.is_clean();
    if is_broken || !run.findings.breaches.is_empty() {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Adds what came of a part.
fn join(run: &mut Run, part: Outcome) {
    run.holds.extend(part.books.holds);
    run.calls.extend(part.books.calls);
    run.faults.extend(part.faults);
    run.fencing.add(part.fencing);
    let (all, more) = (&mut run.findings, part.findings);
    all.overlaps.extend(more.overlaps);
    all.breaches.extend(more.breaches);
    all.lost_updates += more.lost_updates;
    all.late_losses += more.late_losses;
    all.overdue_calls += more.overdue_calls;
    all.panics += more.panics;
    all.leaked_tasks += more.leaked_tasks;
    all.leaked_connections += more.leaked_connections;
    all.leaked_keys += more.leaked_keys;
    all.others.extend(more.others);
}

/// Writes what is left behind.
fn leave(wish: &Wish, run: &Run) -> io::Result<()> {
    fs::create_dir_all(&wish.out)?;
    let json = wish.out.join(format!("run-{}.json", run.setting.seed));
    fs::write(&json, serde_json::to_vec(run).map_err(io::Error::other)?)?;
    let page = json.with_extension("html");
    fs::write(&page, page::render(run))?;
    println!("{}\n{}", page.display(), json.display());
    Ok(())
}

fn command(wish: &Wish, seed: u64) -> String {
    let mut command = format!(
        "cargo run --release -p quorlock-torture -- --seconds {} --seed {seed} --mode {}",
        wish.seconds, wish.mode
    );
    if let Some(nodes) = wish.nodes {
        command = format!("{command} --nodes {nodes}");
    }
    if let Some(server) = &wish.server {
        command = format!("{command} --server {}", server.display());
    }
    if let Some(sabotage) = wish.sabotage.and_then(|sabotage| sabotage.to_possible_value()) {
        command = format!("{command} --sabotage {}", sabotage.get_name());
    }
    command
}

fn setting(wish: &Wish, seed: u64, command: &str, server: &str) -> Setting {
    Setting {
        command: command.to_owned(),
        seed,
        mode: wish.mode.to_string(),
        nodes: 0,
        clients: CLIENTS,
        resources: RESOURCES,
        lasted: 0,
        server: server.to_owned(),
        library: library().to_owned(),
        machine: machine(),
        made_at: crate::date::today(),
    }
}

/// The library's version, from the manifest that this program was built with.
fn library() -> &'static str {
    let manifest = include_str!("../../../Cargo.toml");
    let version = manifest.lines().find_map(|line| line.strip_prefix("version = \""));
    version.map_or("unknown", |version| version.trim_end_matches('"'))
}

fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{processors} processors, {} {}", std::env::consts::OS, kernel.trim())
}
