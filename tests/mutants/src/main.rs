//! Runs the mutation tests of the library. For usage, run `cargo run -p quorlock-mutants -- --help`.

use clap::Parser;
use mutants::{
    End, Header, NUMBER, Patch, Tier, Verdict, all, changed_since, commit_number, copy_tree,
    is_touched, judge, mutated_files, run_with_timeout,
};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

const BUILD_TIMEOUT: Duration = Duration::from_mins(30);

/// Builds a copy of the tree that contains all patches of tests/mutants/patches, and checks that the tests of its tier
/// detect the defect of each patch
#[derive(Parser)]
struct Arguments {
    /// Play only patches whose names contain this text
    #[arg(default_value = "")]
    pattern: String,
    /// Play only patches that this tier must detect: unit, sim, double or it
    #[arg(long)]
    tier: Option<Tier>,
    /// Play only patches with a changed file, or with a test in a file, that differs from this commit
    #[arg(long)]
    since: Option<String>,
    /// Begin no patch later than this many seconds after the build. The order depends on the commit
    #[arg(long)]
    seconds: Option<u64>,
    /// Maximum number of simulation seeds per patch
    #[arg(long, default_value_t = 20_000)]
    seeds: u64,
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

/// A patch and the number that activates it.
type Numbered<'a> = (usize, &'a Patch);

impl Arguments {
    /// Plays the selected patches. Returns true if the tests detected all of them.
    fn run(&self) -> Result<bool, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let root = root.canonicalize().map_err(|error| error.to_string())?;
        let patches = all(&root).map_err(|error| error.to_string())?;
        let patches = patches.into_iter().collect::<Result<Vec<_>, _>>()?;
        let Some(selected) = self.select(&patches, &root)? else {
            println!("no patch is touched by the changes");
            return Ok(true);
        };
        if self.list {
            for (number, patch) in &selected {
                let Header { tier, rule, .. } = &patch.header;
                println!("{number:>3} {:<72} {tier:<6} {rule}", patch.name);
            }
            return Ok(true);
        }
        let tiers = selected.iter().map(|(_, patch)| patch.header.tier).collect();
        let programs = Programs::build(&root, &patches, &tiers)?;
        let begin = Instant::now();
        let (mut missed, mut detected) = (Vec::new(), Vec::new());
        for (number, patch) in &selected {
            if self.seconds.is_some_and(|seconds| begin.elapsed().as_secs() >= seconds) {
                break;
            }
            let started = Instant::now();
            let header = &patch.header;
            let verdict = programs.run(header.tier, &header.test, self.seeds, *number)?;
            let row = row(patch, &verdict, started.elapsed());
            println!("{row}");
            if let Verdict::Detected { seeds, .. } = verdict {
                detected.push((*patch, seeds));
            } else {
                missed.push(row);
            }
        }
        programs.check_without_patches(&detected)?;
        let count = detected.len() + missed.len();
        for (_, patch) in &selected[count..] {
            println!("{:<72} not played: the time is over", patch.name);
        }
        println!("\n{} of {count} detected, in {} s", detected.len(), begin.elapsed().as_secs());
        for row in &missed {
            println!("{row}");
        }
        Ok(missed.is_empty())
    }

    /// Returns the selected patches in the order in which they are played. Returns `None` if `--since` selects none.
    fn select<'a>(
        &self,
        patches: &'a [Patch],
        root: &Path,
    ) -> Result<Option<Vec<Numbered<'a>>>, String> {
        let mut selected: Vec<_> = (1..).zip(patches).collect();
        selected.retain(|(_, patch)| {
            patch.name.contains(&self.pattern)
                && self.tier.is_none_or(|tier| patch.header.tier == tier)
        });
        if selected.is_empty() {
            return Err("no patch matches the selection; --list prints all names".to_owned());
        }
        if let Some(commit) = &self.since {
            let changed = changed_since(commit, root)?;
            let mut touched = Vec::new();
            for (number, patch) in selected {
                if is_touched(patch, &changed, root).map_err(|error| error.to_string())? {
                    touched.push((number, patch));
                }
            }
            selected = touched;
        }
        if selected.is_empty() {
            return Ok(None);
        }
        if self.seconds.is_some() {
            let first = commit_number(root)? % selected.len();
            selected.rotate_left(first);
        }
        Ok(Some(selected))
    }
}

fn row(patch: &Patch, verdict: &Verdict, took: Duration) -> String {
    let (tier, seconds, verdict) = (patch.header.tier, took.as_secs_f64(), verdict.to_string());
    format!("{:<72} {tier:<6} {seconds:>6.1} s  {verdict:.100}", patch.name)
}

/// The programs that contain the tests of the tiers, built from the copy with all patches.
struct Programs {
    copy: PathBuf,
    output: PathBuf,
    paths: BTreeMap<Tier, PathBuf>,
}

impl Programs {
    fn build(root: &Path, patches: &[Patch], tiers: &BTreeSet<Tier>) -> Result<Self, String> {
        let target = env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root.join("target"), |directory| root.join(directory));
        let directory = target.join("mutants");
        let (copy, output) = (directory.join("tree"), directory.join("output"));
        let read =
            |path: &Path| fs::read_to_string(root.join(path)).map_err(|error| error.to_string());
        let files = mutated_files(patches, &read)?;
        copy_tree(root, &copy, &files).map_err(|error| error.to_string())?;
        let mut paths = BTreeMap::new();
        for tier in tiers {
            let started = Instant::now();
            let mut cargo = Command::new("cargo");
            cargo.args(tier.build()).current_dir(&copy);
            // Most builds repeat one that had slightly different patches.
            cargo.env("CARGO_TARGET_DIR", directory.join("target")).env("CARGO_INCREMENTAL", "1");
            cargo.env("CARGO_PROFILE_DEV_DEBUG", "none");
            let built = run_with_timeout(&mut cargo, BUILD_TIMEOUT, &output);
            let built = built.map_err(|error| error.to_string())?;
            let program = program(&built.output);
            let (End::With(Some(0)), Some(program)) = (built.ended, program) else {
                let messages = built.output.lines().filter(|line| !line.starts_with('{'));
                let messages = messages.collect::<Vec<_>>().join("\n");
                let advice = "--list prints the numbers of the patches";
                return Err(format!("{messages}\n{} does not build; {advice}", copy.display()));
            };
            println!("built the tests of tier {tier} in {} s", started.elapsed().as_secs());
            paths.insert(*tier, program);
        }
        Ok(Self { copy, output, paths })
    }

    /// Runs `test` with the defect of patch `number`, or without a defect if `number` is 0.
    fn run(&self, tier: Tier, test: &str, seeds: u64, number: usize) -> Result<Verdict, String> {
        let mut program = Command::new(&self.paths[&tier]);
        program.args(tier.run(test, seeds)).current_dir(&self.copy);
        program.env(NUMBER, number.to_string()).env("RUST_BACKTRACE", "0");
        // A failing case suffices, and must not be replayed with the next patch.
        program.env("PROPTEST_MAX_SHRINK_ITERS", "0").env("PROPTEST_FAILURE_PERSISTENCE", "off");
        let result = run_with_timeout(&mut program, tier.timeout(), &self.output);
        Ok(judge(tier, &result.map_err(|error| error.to_string())?))
    }

    /// Checks that the copy passes all tests that detected a patch, if no patch is active. Tests that always fail would
    /// seem to detect every patch. A simulation plays as many seeds as the rarest defect needed.
    fn check_without_patches(&self, detected: &[(&Patch, Option<u64>)]) -> Result<(), String> {
        let mut runs = BTreeMap::<(Tier, &str), (BTreeSet<&str>, u64)>::new();
        for (patch, seeds) in detected {
            let header = &patch.header;
            let mode = if header.tier == Tier::Sim { &*header.test } else { "" };
            let (tests, most) = runs.entry((header.tier, mode)).or_default();
            tests.extend(header.test.split_whitespace());
            *most = seeds.unwrap_or_default().max(*most);
        }
        for ((tier, _), (tests, seeds)) in runs {
            let tests = tests.into_iter().collect::<Vec<_>>().join(" ");
            let verdict = self.run(tier, &tests, seeds, 0)?;
            if verdict != Verdict::Survived {
                return Err(format!("without a patch, {tier} {tests}: {verdict}"));
            }
        }
        Ok(())
    }
}

/// Returns the path of the program that cargo has built. Each line of `output` describes a result in JSON.
fn program(output: &str) -> Option<PathBuf> {
    let (_, path) = output.rsplit_once(r#""executable":""#)?;
    Some(PathBuf::from(path.split_once('"')?.0))
}
