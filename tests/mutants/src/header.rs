//! What a patch says of itself.

use crate::tier::Tier;

/// The lines before the diff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The defect, in a sentence.
    pub what: String,
    /// What comes of it, in a sentence.
    pub why: String,
    /// The tier that must catch it.
    pub tier: Tier,
    /// The tests of that tier that do; the simulator needs none to be named.
    pub test: Option<String>,
    /// Tests of another tier that catch it as well.
    pub also: Option<(Tier, String)>,
    /// The rule of docs/DESIGN.md that it breaks: `I8`.
    pub rule: Option<String>,
}

/// A key that is for readers: the defect that the project had and mended.
const FOR_READERS: &str = "mended";

impl Header {
    /// Reads the lines before the diff.
    ///
    /// # Errors
    /// What is missing, unknown or said twice.
    pub fn parse(lines: &str) -> Result<Self, String> {
        let [mut what, mut why, mut tier_word, mut tests, mut beside, mut rule] = [None; 6];
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let (key, value) =
                line.split_once(": ").ok_or_else(|| format!("no `key: value`: {line}"))?;
            let place = match key {
                "what" => &mut what,
                "why it matters" => &mut why,
                "tier" => &mut tier_word,
                "test" => &mut tests,
                "also" => &mut beside,
                "rule" => &mut rule,
                FOR_READERS => continue,
                other => return Err(format!("unknown key: {other}")),
            };
            if place.replace(value.trim()).is_some() {
                return Err(format!("said twice: {key}"));
            }
        }
        let tier = tier_word.ok_or("no tier")?.parse::<Tier>()?;
        if tier.is_tests() && tests.is_none() {
            return Err("no test".to_owned());
        }
        Ok(Self {
            what: sentence("what", what)?,
            why: sentence("why it matters", why)?,
            tier,
            test: tests.map(str::to_owned),
            also: beside.map(in_tier).transpose()?,
            rule: rule.map(str::to_owned),
        })
    }
}

fn sentence(key: &str, text: Option<&str>) -> Result<String, String> {
    match text {
        Some(text) if text.ends_with('.') => Ok(text.to_owned()),
        Some(text) => Err(format!("{key} is no sentence: {text}")),
        None => Err(format!("no {key}")),
    }
}

/// A tier, and tests of it.
fn in_tier(text: &str) -> Result<(Tier, String), String> {
    let (tier, tests) = text.split_once(' ').ok_or("also: a tier and tests")?;
    Ok((tier.parse()?, tests.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "what: It breaks.\nwhy it matters: All is lost.\ntier: sim\nalso: unit a::b c\nrule: I8\nmended: old\n";

    #[test]
    fn a_whole_header_is_read() {
        let header = Header::parse(WHOLE).expect("a whole header");
        assert_eq!((header.what.as_str(), header.tier), ("It breaks.", Tier::Sim));
        assert_eq!(header.also, Some((Tier::Unit, "a::b c".to_owned())));
        assert_eq!(header.rule.as_deref(), Some("I8"));
    }

    #[test]
    fn what_is_missing_unknown_or_said_twice_is_named() {
        for (from, to, error) in [
            ("tier: sim", "tier: unit", "no test"),
            ("tier: sim", "tier: luck", "no such tier: luck"),
            ("tier: sim\n", "", "no tier"),
            ("It breaks.", "It breaks", "what is no sentence: It breaks"),
            ("mended: old", "who: me", "unknown key: who"),
            ("mended: old", "tier: sim", "said twice: tier"),
        ] {
            assert_eq!(Header::parse(&WHOLE.replace(from, to)), Err(error.to_owned()));
        }
    }
}
