//! What a run leaves behind: its record, its page, and its verdict in words.

use crate::date;
use crate::page;
use crate::record::{Fencing, Findings, Run, Setting, Stretch};
use crate::say;
use crate::session::{Outcome, RESOURCES};
use crate::verdict;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// A run, as it comes together.
pub struct Report {
    run: Run,
    tally: verdict::Counted,
}

impl Report {
    /// Of a run that is made again by `command`.
    pub fn new(command: &str, seed: u64, is_inside: bool, clients: u16) -> Self {
        let setting = Setting {
            command: command.to_owned(),
            seed,
            mode: if is_inside { "inside" } else { "outside" }.to_owned(),
            nodes: 0,
            clients,
            resources: RESOURCES,
            lasted: 0,
            server: String::new(),
            library: env!("CARGO_PKG_VERSION").to_owned(),
            machine: machine(),
            made_at: date::today(),
        };
        let run = Run {
            setting,
            stretches: Vec::new(),
            holds: Vec::new(),
            faults: Vec::new(),
            skipped: Vec::new(),
            calls: Vec::new(),
            fencing: Fencing::default(),
            findings: Findings::default(),
        };
        Self { run, tally: verdict::Counted::default() }
    }

    /// Adds a part of the run: so many nodes, `from` when on, by the clock of the run.
    pub fn add(&mut self, nodes: u16, from: Duration, part: Outcome) {
        self.tally.count(&part);
        let run = &mut self.run;
        run.setting.nodes = run.setting.nodes.max(nodes);
        run.setting.server = part.server;
        let from = u64::try_from(from.as_nanos()).unwrap_or(u64::MAX);
        run.stretches.push(Stretch { nodes, from });
        run.holds.extend(part.books.holds);
        run.calls.extend(part.books.calls);
        run.faults.extend(part.faults);
        run.skipped.extend(part.skipped);
        run.fencing.add(part.fencing);
        run.findings.add(part.findings);
    }

    /// Prints the verdict of a run that took so long, and leaves its record and its page in `out`.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub fn finish(&mut self, lasted: Duration, out: &Path) -> io::Result<()> {
        self.run.setting.lasted = u64::try_from(lasted.as_nanos()).unwrap_or(u64::MAX);
        verdict::print(&self.run, &self.tally);
        fs::create_dir_all(out)?;
        let json = out.join(format!("run-{}.json", self.run.setting.seed));
        fs::write(&json, serde_json::to_vec(&self.run).map_err(io::Error::other)?)?;
        let page = json.with_extension("html");
        fs::write(&page, page::render(&self.run))?;
        say!("{}\n{}", page.display(), json.display());
        Ok(())
    }

    /// Whether something was found that must not be: anything inside the promise, and outside of it what fencing
    /// tokens did not prevent.
    pub fn is_bad(&self) -> bool {
        let findings = &self.run.findings;
        let is_inside = self.run.setting.mode == "inside";
        (is_inside && !findings.is_clean()) || !findings.breaches.is_empty()
    }

    /// Whether nobody ever had a lock: such a run shows nothing.
    pub fn is_empty(&self) -> bool {
        self.run.holds.is_empty()
    }
}

fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{processors} processors, {} {}", std::env::consts::OS, kernel.trim())
}
