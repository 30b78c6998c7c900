//! Plays mutations of the product: `cargo run -p quorlock-mutants -- --help`.

use clap::Parser;
use mutants::{Ended, Job, Part, Patch, Row, Selection, Tier, Tree, Verdict, all, judge, play};
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// How long a build may take.
const BUILD_BOUND: Duration = Duration::from_mins(20);

/// Applies each patch of tests/mutants/patches to a copy of the tree, and looks whether its tier catches it.
#[derive(Parser)]
struct Arguments {
    /// Plays the patches that have this in their names
    #[arg(default_value = "")]
    pattern: String,
    /// Plays those that this tier must catch: sim, unit, loom, it, double, paused, counts or model
    #[arg(long)]
    tier: Option<Tier>,
    /// Plays one of ten parts of them: 0 to 9
    #[arg(long)]
    part: Option<Part>,
    /// How many seeds the simulator plays for each
    #[arg(long, default_value_t = 20_000)]
    seeds: u64,
    /// Plays the tests that patches name beside their tier; those that name none are left out
    #[arg(long)]
    also: bool,
    /// Takes it for granted that the tree itself passes what is played
    #[arg(long)]
    trust_tree: bool,
    /// Lists the patches that would be played
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    match Arguments::parse().run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::from(2)
        }
    }
}

impl Arguments {
    /// Plays what was asked for; true if all was caught.
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
            return Err("no patch is named so".to_owned());
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
        let bench = Bench::new(&root, self.seeds)?;
        if !self.trust_tree {
            bench.look_at_the_tree(jobs.iter().map(|(_, job)| job))?;
        }
        let mut rows = Vec::new();
        for (patch, job) in jobs {
            let row = bench.play(patch, &job)?;
            println!("{row}");
            rows.push(row);
        }
        Ok(sum_up(&rows))
    }

    /// What is to be played for `patch`.
    fn job(&self, patch: &Patch) -> Option<Job> {
        let header = &patch.header;
        if self.also {
            let (tier, tests) = header.also.clone()?;
            return Some(Job { tier, tests });
        }
        Some(Job { tier: header.tier, tests: header.test.clone().unwrap_or_default() })
    }
}

/// Prints what was not caught, and how many there were; true if all were caught.
fn sum_up(rows: &[Row]) -> bool {
    let missed: Vec<_> = rows.iter().filter(|row| !row.verdict.is_caught()).collect();
    println!("\n{} of {} caught", rows.len() - missed.len(), rows.len());
    for row in &missed {
        println!("{row}");
    }
    missed.is_empty()
}

/// Where patches are tried: a copy of the tree, with a target directory of its own.
struct Bench {
    tree: Tree,
    dir: PathBuf,
    seeds: u64,
}

impl Bench {
    fn new(root: &Path, seeds: u64) -> Result<Self, String> {
        let target = env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root.join("target"), |dir| root.join(dir));
        let dir = target.join("mutants");
        let tree = Tree::copied(root, &dir.join("tree")).map_err(|error| error.to_string())?;
        Ok(Self { tree, dir, seeds })
    }

    /// Says so if the tree itself does not pass what is to be played: then it would catch anything.
    fn look_at_the_tree<'a>(&self, jobs: impl Iterator<Item = &'a Job>) -> Result<(), String> {
        for job in jobs.collect::<BTreeSet<_>>() {
            let verdict = self.judged(job)?;
            if verdict != Verdict::Survived {
                return Err(format!("{} {} on the tree as it is: {verdict}", job.tier, job.tests));
            }
        }
        Ok(())
    }

    fn play(&self, patch: &Patch, job: &Job) -> Result<Row, String> {
        let begun = Instant::now();
        let verdict = match self.tree.break_by(patch) {
            Ok(()) => self.judged(job)?,
            Err(why) => Verdict::DoesNotApply(why),
        };
        self.tree.mend(patch).map_err(|error| error.to_string())?;
        Ok(Row { name: patch.name.clone(), tier: job.tier, verdict, took: begun.elapsed() })
    }

    /// Removes what the compiler keeps to build faster.
    fn forget_builds(&self) -> Result<(), String> {
        for profile in ["debug", "release"] {
            let kept = self.dir.join("target").join(profile).join("incremental");
            if kept.is_dir() {
                fs::remove_dir_all(kept).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// Builds and plays the copy as it stands.
    fn judged(&self, job: &Job) -> Result<Verdict, String> {
        let output = self.dir.join("output");
        let cargo = |arguments: Vec<String>, bound: Duration| {
            let mut cargo = Command::new("cargo");
            cargo.args(arguments).current_dir(self.tree.copy());
            cargo.env("CARGO_TARGET_DIR", self.dir.join("target"));
            // What changes is one file: most of a build is not done again, and nobody debugs it.
            cargo
                .env("CARGO_INCREMENTAL", "1")
                .env("CARGO_PROFILE_DEV_DEBUG", "0")
                .env("RUST_BACKTRACE", "0");
            play(&mut cargo, bound, &output).map_err(|error| error.to_string())
        };
        let mut built = cargo(job.build(), BUILD_BOUND)?;
        if matches!(built.ended, Ended::With(code) if code != Some(0)) {
            // The compiler may have stumbled over what it keeps between builds: it begins anew.
            self.forget_builds()?;
            built = cargo(job.build(), BUILD_BOUND)?;
        }
        match built.ended {
            Ended::With(Some(0)) => {}
            Ended::With(_) => return Ok(Verdict::of_build(&built.output)),
            Ended::TimeOver => return Ok(Verdict::TimeOver),
        }
        Ok(judge(job.tier, &cargo(job.play(self.seeds), job.bound())?))
    }
}
