//! Runs the mutation tests of the library. For usage, run `cargo run -p quorlock-mutants -- --help`.

use clap::Parser;
use mutants::{
    End, Job, Part, Patch, Row, Selection, Tier, Tree, Verdict, all, judge, run_with_timeout,
};
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

const BUILD_TIMEOUT: Duration = Duration::from_mins(20);

/// Applies each patch of tests/mutants/patches to a copy of the tree, and checks that the tests of its tier
/// detect the defect.
#[derive(Parser)]
struct Arguments {
    /// Run only patches whose names contain this text
    #[arg(default_value = "")]
    pattern: String,
    /// Run only patches that this tier must detect: sim, unit, loom, it, strain, double, paused, counts or
    /// model
    #[arg(long)]
    tier: Option<Tier>,
    /// Run one of ten parts of the patches: 0 to 9
    #[arg(long)]
    part: Option<Part>,
    /// Maximum number of simulator seeds per patch
    #[arg(long, default_value_t = 20_000)]
    seeds: u64,
    /// Run the tests in the patches' `also:` lines, and skip patches without such a line
    #[arg(long)]
    also: bool,
    /// Skip the check that the unchanged tree passes the tests
    #[arg(long)]
    trust_tree: bool,
    /// List the selected patches and exit
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    match Arguments::parse().run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

impl Arguments {
    /// Runs the selected patches. Returns true if the tests detected all of them.
    fn run(self) -> Result<bool, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let root = root.canonicalize().map_err(|error| error.to_string())?;
        let patches = all(&root).map_err(|error| error.to_string())?;
        let patches = patches.into_iter().collect::<Result<Vec<_>, _>>()?;
        let jobs = patches.iter().filter_map(|patch| Some((patch, self.job(patch)?)));
        let of_tier = jobs.filter(|(_, job)| self.tier.is_none_or(|tier| job.tier == tier));
        let selection = Selection { pattern: self.pattern.clone(), part: self.part };
        let jobs = selection.of(of_tier.collect(), |(patch, _)| &patch.name);
        if jobs.is_empty() {
            return Err("no patch matches the selection; --list prints all names".to_owned());
        }
        if self.list {
            for (patch, job) in &jobs {
                println!("{:<72} {}", patch.name, job.tier);
            }
            return Ok(true);
        }
        if let Some(part) = self.part {
            println!("part {} of the patches", part.number());
        }
        let runner = Runner::new(&root, self.seeds)?;
        if !self.trust_tree {
            runner.check_tree(jobs.iter().map(|(_, job)| job))?;
        }
        let mut rows = Vec::new();
        for (patch, job) in jobs {
            let row = runner.try_patch(patch, &job)?;
            println!("{row}");
            rows.push(row);
        }
        Ok(print_summary(&rows))
    }

    /// Returns the tests to run for `patch`. With `--also`, returns `None` if the patch has no `also:` line.
    fn job(&self, patch: &Patch) -> Option<Job> {
        let header = &patch.header;
        if self.also {
            let (tier, tests) = header.also.clone()?;
            return Some(Job { tier, tests });
        }
        Some(Job { tier: header.tier, tests: header.test.clone().unwrap_or_default() })
    }
}

fn print_summary(rows: &[Row]) -> bool {
    let missed: Vec<_> = rows.iter().filter(|row| !row.verdict.is_detected()).collect();
    println!("\n{} of {} detected", rows.len() - missed.len(), rows.len());
    for row in &missed {
        println!("{row}");
    }
    missed.is_empty()
}

struct Runner {
    tree: Tree,
    dir: PathBuf,
    seeds: u64,
}

impl Runner {
    fn new(root: &Path, seeds: u64) -> Result<Self, String> {
        let target = env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root.join("target"), |dir| root.join(dir));
        let dir = target.join("mutants");
        let tree = Tree::sync(root, &dir.join("tree")).map_err(|error| error.to_string())?;
        Ok(Self { tree, dir, seeds })
    }

    /// Checks that the unchanged tree passes the tests. A test that fails without a patch would seem to detect every
    /// patch.
    fn check_tree<'a>(&self, jobs: impl Iterator<Item = &'a Job>) -> Result<(), String> {
        for job in jobs.collect::<BTreeSet<_>>() {
            let verdict = self.run_job(job)?;
            if verdict != Verdict::Survived {
                return Err(format!("{} {} on the unchanged tree: {verdict}", job.tier, job.tests));
            }
        }
        Ok(())
    }

    fn try_patch(&self, patch: &Patch, job: &Job) -> Result<Row, String> {
        let started = Instant::now();
        let verdict = match self.tree.apply_to_copy(patch) {
            Ok(()) => self.run_job(job)?,
            Err(why) => Verdict::DoesNotApply(why),
        };
        self.tree.restore(patch).map_err(|error| error.to_string())?;
        Ok(Row { name: patch.name.clone(), tier: job.tier, verdict, took: started.elapsed() })
    }

    fn clear_incremental(&self) -> Result<(), String> {
        for profile in ["debug", "release"] {
            let kept = self.dir.join("target").join(profile).join("incremental");
            if kept.is_dir() {
                fs::remove_dir_all(kept).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    fn run_job(&self, job: &Job) -> Result<Verdict, String> {
        let output = self.dir.join("output");
        let cargo = |arguments: Vec<String>, timeout: Duration| {
            let mut cargo = Command::new("cargo");
            cargo.args(arguments).current_dir(self.tree.copy());
            cargo.env("CARGO_TARGET_DIR", self.dir.join("target"));
            // A patch changes one file, so incremental builds save most of the work. Debug information is not
            // needed.
            cargo
                .env("CARGO_INCREMENTAL", "1")
                .env("CARGO_PROFILE_DEV_DEBUG", "0")
                .env("RUST_BACKTRACE", "0");
            run_with_timeout(&mut cargo, timeout, &output).map_err(|error| error.to_string())
        };
        let mut built = cargo(job.build_args(), BUILD_TIMEOUT)?;
        if matches!(built.ended, End::With(code) if code != Some(0)) {
            // Incremental data may have broken the build, so build again without it.
            self.clear_incremental()?;
            built = cargo(job.build_args(), BUILD_TIMEOUT)?;
        }
        match built.ended {
            End::With(Some(0)) => {}
            End::With(_) => return Ok(Verdict::of_build(&built.output)),
            End::TimedOut => return Ok(Verdict::TimedOut),
        }
        Ok(judge(job.tier, &cargo(job.run_args(self.seeds), job.timeout())?))
    }
}
