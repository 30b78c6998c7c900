//! The header of a patch: the defect, its consequence, and the tests that must detect the defect.

use crate::tier::Tier;

/// The lines of a patch before its `file:` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The defect, in one sentence.
    pub what: String,
    /// The consequence of the defect, in one sentence.
    pub why: String,
    /// The tier that must detect the defect.
    pub tier: Tier,
    /// The tests of `tier` that detect the defect. Optional for the simulator and the model.
    pub test: Option<String>,
    /// Another tier, and its tests that also detect the defect.
    pub also: Option<(Tier, String)>,
    /// The rule of docs/DESIGN.md that the defect breaks, such as `I8`.
    pub rule: Option<String>,
}

/// A key for readers only, which the program ignores. It refers to the fix of a defect that the project once had.
const FOR_READERS: &str = "mended";

impl Header {
    /// Parses the lines of a patch before its `file:` line.
    ///
    /// # Errors
    /// Returns an error if a key is missing, unknown or repeated, or if a value is malformed.
    pub fn parse(lines: &str) -> Result<Self, String> {
        let [mut what, mut why, mut tier_word, mut tests, mut also_tests, mut rule] = [None; 6];
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let (key, value) = line
                .split_once(": ")
                .ok_or_else(|| format!("expected `key: value`, found: {line}"))?;
            let place = match key {
                "what" => &mut what,
                "why it matters" => &mut why,
                "tier" => &mut tier_word,
                "test" => &mut tests,
                "also" => &mut also_tests,
                "rule" => &mut rule,
                FOR_READERS => continue,
                other => return Err(format!("unknown key: {other}")),
            };
            if place.replace(value.trim()).is_some() {
                return Err(format!("repeated key: {key}"));
            }
        }
        let tier = tier_word.ok_or("missing `tier:`")?.parse::<Tier>()?;
        if tier.is_tests() && tests.is_none() {
            return Err("missing `test:`".to_owned());
        }
        Ok(Self {
            what: sentence("what", what)?,
            why: sentence("why it matters", why)?,
            tier,
            test: tests.map(str::to_owned),
            also: also_tests.map(parse_also).transpose()?,
            rule: rule.map(str::to_owned),
        })
    }
}

fn sentence(key: &str, text: Option<&str>) -> Result<String, String> {
    match text {
        Some(text) if text.ends_with('.') => Ok(text.to_owned()),
        Some(text) => Err(format!("`{key}:` does not end with a period: {text}")),
        None => Err(format!("missing `{key}:`")),
    }
}

fn parse_also(text: &str) -> Result<(Tier, String), String> {
    let (tier, tests) = text.split_once(' ').ok_or("`also:` needs a tier and tests")?;
    Ok((tier.parse()?, tests.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPLETE: &str = "what: It breaks.\nwhy it matters: Keys are lost.\ntier: sim\nalso: unit a::b c\nrule: I8\nmended: old\n";

    #[test]
    fn complete_header_is_parsed() {
        let header = Header::parse(COMPLETE).expect("a complete header");
        assert_eq!((header.what.as_str(), header.tier), ("It breaks.", Tier::Sim));
        assert_eq!(header.also, Some((Tier::Unit, "a::b c".to_owned())));
        assert_eq!(header.rule.as_deref(), Some("I8"));
    }

    #[test]
    fn error_names_a_missing_unknown_or_repeated_key() {
        for (from, to, error) in [
            ("tier: sim", "tier: unit", "missing `test:`"),
            ("tier: sim", "tier: luck", "unknown tier: luck"),
            ("tier: sim\n", "", "missing `tier:`"),
            ("It breaks.", "It breaks", "`what:` does not end with a period: It breaks"),
            ("mended: old", "who: me", "unknown key: who"),
            ("mended: old", "tier: sim", "repeated key: tier"),
        ] {
            assert_eq!(Header::parse(&COMPLETE.replace(from, to)), Err(error.to_owned()));
        }
    }
}
