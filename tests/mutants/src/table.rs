//! The table of results that the program prints.

use crate::tier::Tier;
use crate::verdict::Verdict;
use std::fmt;
use std::time::Duration;

const MAX_VERDICT_CHARS: usize = 100;

/// The result of one patch.
#[derive(Clone, Debug)]
pub struct Row {
    /// The name of the patch.
    pub name: String,
    /// The tier whose tests ran.
    pub tier: Tier,
    /// The verdict on the patch.
    pub verdict: Verdict,
    /// The duration of the run, including the build.
    pub took: Duration,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seeds = match &self.verdict {
            Verdict::Detected { seeds: Some(seeds), .. } => seeds.to_string(),
            _ => String::new(),
        };
        let shown: String = self.verdict.to_string().chars().take(MAX_VERDICT_CHARS).collect();
        let (tier, seconds) = (self.tier, self.took.as_secs());
        write!(f, "{:<72} {tier:<6} {seeds:>6} {seconds:>4} s  {shown}", self.name)
    }
}
