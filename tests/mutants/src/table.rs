//! What is printed of each patch.

use crate::tier::Tier;
use crate::verdict::Verdict;
use std::fmt;
use std::time::Duration;

/// So much of a verdict is printed.
const MOST: usize = 100;

/// One patch that was played.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Where it was to be caught.
    pub tier: Tier,
    /// What became of it.
    pub verdict: Verdict,
    /// How long that took, building included.
    pub took: Duration,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seeds = match &self.verdict {
            Verdict::Caught { seeds: Some(seeds), .. } => seeds.to_string(),
            _ => String::new(),
        };
        let told: String = self.verdict.to_string().chars().take(MOST).collect();
        let (tier, seconds) = (self.tier, self.took.as_secs());
        write!(f, "{:<72} {tier:<6} {seeds:>6} {seconds:>4} s  {told}", self.name)
    }
}
