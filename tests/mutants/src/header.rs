//! The header of a patch: the defect, its consequence, the rule that it breaks, and the tests that must detect it.

use crate::tier::Tier;

/// The rules that patches break, apart from the invariants I1, I2 and so on of docs/DESIGN.md.
pub const RULES: [&str; 11] = [
    "tokens",
    "readers",
    "jobs",
    "semaphores",
    "renewal",
    "loss",
    "cancellation",
    "pending-releases",
    "waiting",
    "scripts",
    "public",
];

/// The lines of a patch before its first `file:` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The defect, in one sentence.
    pub what: String,
    /// The consequence of the defect, in one sentence.
    pub why: String,
    /// The rule that the defect breaks: an invariant of docs/DESIGN.md such as `I8`, or one of [`RULES`].
    pub rule: String,
    /// The tier that must detect the defect.
    pub tier: Tier,
    /// The tests of `tier` that detect the defect, separated by spaces. For the simulation, its mode, or empty for all
    /// modes.
    pub test: String,
}

impl Header {
    /// Parses the lines of a patch before its first `file:` line.
    ///
    /// # Errors
    /// Returns an error if a key is missing, unknown or repeated, or if a value is malformed.
    pub fn parse(lines: &str) -> Result<Self, String> {
        let [mut what, mut why, mut rule, mut tier, mut test] = [None; 5];
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let (key, value) = line
                .split_once(": ")
                .ok_or_else(|| format!("expected `key: value`, found: {line}"))?;
            let place = match key {
                "what" => &mut what,
                "why it matters" => &mut why,
                "rule" => &mut rule,
                "tier" => &mut tier,
                "test" => &mut test,
                other => return Err(format!("unknown key: {other}")),
            };
            if place.replace(value.trim()).is_some() {
                return Err(format!("repeated key: {key}"));
            }
        }
        let rule = rule.ok_or("missing `rule:`")?;
        if invariant(rule).is_none() && !RULES.contains(&rule) {
            let rules = RULES.join(", ");
            return Err(format!("unknown rule: {rule}; use an invariant such as I8, or {rules}"));
        }
        let tier = tier.ok_or("missing `tier:`")?.parse::<Tier>()?;
        if tier != Tier::Sim && test.is_none() {
            return Err("missing `test:`".to_owned());
        }
        Ok(Self {
            what: sentence("what", what)?,
            why: sentence("why it matters", why)?,
            rule: rule.to_owned(),
            tier,
            test: test.unwrap_or_default().to_owned(),
        })
    }
}

/// Returns the number of an invariant such as `I8`.
pub(crate) fn invariant(rule: &str) -> Option<u32> {
    rule.strip_prefix('I')?.parse().ok()
}

fn sentence(key: &str, text: Option<&str>) -> Result<String, String> {
    match text {
        Some(text) if text.ends_with('.') => Ok(text.to_owned()),
        Some(text) => Err(format!("`{key}:` does not end with a period: {text}")),
        None => Err(format!("missing `{key}:`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPLETE: &str =
        "what: It breaks.\nwhy it matters: Keys are lost.\nrule: I8\ntier: unit\ntest: a::b c\n";

    #[test]
    fn complete_header_is_parsed() {
        let header = Header::parse(COMPLETE).expect("a complete header");
        assert_eq!((header.what.as_str(), header.tier), ("It breaks.", Tier::Unit));
        assert_eq!((header.rule.as_str(), header.test.as_str()), ("I8", "a::b c"));
        let simulated = COMPLETE.replace("unit\ntest: a::b c", "sim").replace("I8", "tokens");
        assert_eq!(Header::parse(&simulated).expect("all modes").test, "");
    }

    #[test]
    fn error_names_a_missing_unknown_or_repeated_key() {
        for (from, to, error) in [
            ("test: a::b c\n", "", "missing `test:`"),
            ("tier: unit", "tier: luck", "unknown tier: luck"),
            ("tier: unit\n", "", "missing `tier:`"),
            ("rule: I8\n", "", "missing `rule:`"),
            ("It breaks.", "It breaks", "`what:` does not end with a period: It breaks"),
            ("test: a", "who: a", "unknown key: who"),
            ("test: a::b c", "tier: sim", "repeated key: tier"),
        ] {
            assert_eq!(Header::parse(&COMPLETE.replace(from, to)), Err(error.to_owned()));
        }
        let unknown = Header::parse(&COMPLETE.replace("I8", "speed"));
        assert!(unknown.is_err_and(|error| error.starts_with("unknown rule: speed; use ")));
    }
}
