//! Printed results of patches.

use crate::tier::Tier;
use crate::verdict::Verdict;
use std::fmt;
use std::time::Duration;

/// Printed characters of a verdict.
const MAX_VERDICT_CHARS: usize = 100;

/// Result of one patch.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the patch.
    pub name: String,
    /// Tier that ran.
    pub tier: Tier,
    /// Verdict.
    pub verdict: Verdict,
    /// Time it took, including the build.
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
