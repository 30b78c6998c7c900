//! The report of a run: the JSON record, the HTML page, and the summary on standard output.

use crate::date;
use crate::page;
#[cfg(doc)]
use crate::record::Findings;
use crate::record::{Run, Setting, Stretch};
use crate::resources::RESOURCES;
use crate::say;
use crate::session::Outcome;
use crate::verdict;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Collects the parts of a run, in order, and writes the report.
pub struct Report {
    run: Run,
    counts: verdict::RunCounts,
}

impl Report {
    /// Creates an empty report. `command` is the command line that repeats the run.
    pub fn new(command: &str, seed: u64, is_inside: bool, clients: u16) -> Self {
        let setting = Setting {
            command: command.to_owned(),
            seed,
            mode: if is_inside { "inside" } else { "outside" }.to_owned(),
            clients,
            resources: RESOURCES,
            library: env!("CARGO_PKG_VERSION").to_owned(),
            machine: machine(),
            made_at: date::today(),
            ..Setting::default()
        };
        let run = Run { setting, ..Run::default() };
        Self { run, counts: verdict::RunCounts::default() }
    }

    /// Adds a part that began `from` after the start of the run.
    pub fn add(&mut self, nodes: u16, from: Duration, part: Outcome) {
        self.counts.count(&part);
        let run = &mut self.run;
        run.setting.nodes = run.setting.nodes.max(nodes);
        run.setting.server = part.server;
        let from = u64::try_from(from.as_nanos()).unwrap_or(u64::MAX);
        run.stretches.push(Stretch { nodes, from });
        run.holds.extend(part.records.holds);
        run.calls.extend(part.records.calls);
        run.faults.extend(part.faults);
        run.skipped.extend(part.skipped);
        run.fencing.add(part.fencing);
        run.findings.add(part.findings);
    }

    /// Prints the summary, and writes the JSON record and the HTML page to the directory `out`.
    /// `lasted` is the duration of the run.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be written.
    pub fn finish(&mut self, lasted: Duration, out: &Path) -> io::Result<()> {
        self.run.setting.lasted = u64::try_from(lasted.as_nanos()).unwrap_or(u64::MAX);
        verdict::print(&self.run, &self.counts);
        fs::create_dir_all(out)?;
        let json = out.join(format!("run-{}.json", self.run.setting.seed));
        fs::write(&json, serde_json::to_vec(&self.run).map_err(io::Error::other)?)?;
        let page = json.with_extension("html");
        fs::write(&page, page::render(&self.run))?;
        say!("{}\n{}", page.display(), json.display());
        Ok(())
    }

    /// Returns true if the run has failed, as defined by [`Findings::is_failure`].
    pub fn is_bad(&self) -> bool {
        self.run.findings.is_failure(self.run.setting.mode == "inside")
    }

    /// Returns true if no client acquired a lock. Such a run is no evidence of correctness.
    pub fn is_empty(&self) -> bool {
        self.run.holds.is_empty()
    }
}

fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{processors} processors, {} {}", std::env::consts::OS, kernel.trim())
}
