//! Counts of the conditions that runs have met: how often each rule was tested, and how often
//! situations occurred that defects need to show up.

use crate::rule::Rule;
use std::fmt;

macro_rules! situations {
    ($($name:ident $sentence:literal,)*) => {
        /// A situation in which a defect of a guard would violate a rule.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Situation { $(
            #[doc = $sentence]
            $name,
        )* }

        impl Situation {
            /// All situations.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

situations! {
    ExpiryTakeOver "A client acquires a lock whose previous holder, another client, has not released it before its lease expired.",
    ForgottenLock "A client tries to acquire a lock while another client's lease is valid. A node has lost its data since that lease began.",
    ForgottenReader "A client tries to write while a reader's lease is valid. A node has lost its data since that lease began.",
    ForgottenWriter "A client tries to read or write while a writer's lease is valid. A node has lost its data since that lease began.",
    ForgottenPermit "A client tries to acquire a permit while another lease of the semaphore is valid. A node has lost its data since that lease began.",
    SteppedLock "A client tries to acquire or write while another lease of the lock is valid. A node's clock has stepped forward since that lease began.",
    ForgottenCounter "A job is called again in a period. A node has lost its data since the job's run.",
}

/// A counted event of a run: the condition of a rule, or a situation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The condition of a rule, such as a lease that follows another client's lease.
    Rule(Rule),
    /// A situation in which a defect of a guard would violate a rule.
    Situation(Situation),
}

const COUNT: usize = Rule::ALL.len() + Situation::ALL.len();

/// How often each condition was met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts([u64; COUNT]);

impl From<Rule> for Condition {
    fn from(rule: Rule) -> Self {
        Self::Rule(rule)
    }
}

impl From<Situation> for Condition {
    fn from(situation: Situation) -> Self {
        Self::Situation(situation)
    }
}

impl Condition {
    fn all() -> impl Iterator<Item = Self> {
        let situations = Situation::ALL.iter().copied().map(Self::Situation);
        Rule::ALL.iter().copied().map(Self::Rule).chain(situations)
    }

    fn index(self) -> usize {
        match self {
            Self::Rule(rule) => rule as usize,
            Self::Situation(situation) => Rule::ALL.len() + situation as usize,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => write!(f, "{rule:?}"),
            Self::Situation(situation) => write!(f, "{situation:?}"),
        }
    }
}

impl Default for Counts {
    fn default() -> Self {
        Self([0; COUNT])
    }
}

impl Counts {
    /// Returns how often `condition` was met.
    pub fn get(&self, condition: impl Into<Condition>) -> u64 {
        self.0[condition.into().index()]
    }

    pub(crate) fn add(&mut self, condition: impl Into<Condition>, times: u64) {
        self.0[condition.into().index()] += times;
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }

    /// Discards the counts of rules for which `is_checked` returns false.
    pub(crate) fn retain(&mut self, is_checked: impl Fn(Rule) -> bool) {
        for rule in Rule::ALL.iter().filter(|rule| !is_checked(**rule)) {
            self.0[*rule as usize] = 0;
        }
    }
}

/// Lists the counts that are not zero.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let met = Condition::all().filter(|condition| self.get(*condition) > 0);
        let texts = met.map(|condition| format!("{condition} {}", self.get(condition)));
        f.write_str(&texts.collect::<Vec<_>>().join(", "))
    }
}
