//! Selects the patches to run, by name and by part.

use std::str::FromStr;

const PARTS: u64 = 10;

/// A tenth of the patches. Part `n`, from 0 to 9, contains every tenth patch, beginning with patch `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part(u64);

impl FromStr for Part {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word.parse() {
            Ok(number) if number < PARTS => Ok(Self(number)),
            _ => Err(format!("the part must be a number below {PARTS}, not {word:?}")),
        }
    }
}

impl Part {
    /// Returns the number of the part, from 0 to 9.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// The criteria that select the patches to run.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Selects the patches whose names contain this text. An empty text selects all patches.
    pub pattern: String,
    /// The part of these patches to select, or `None` for all parts.
    pub part: Option<Part>,
}

impl Selection {
    /// Returns the selected elements of `all`, in their original order.
    pub fn of<T>(&self, all: Vec<T>, name: impl Fn(&T) -> &str) -> Vec<T> {
        let named = all.into_iter().filter(|one| name(one).contains(&self.pattern));
        let parts = (0..PARTS).cycle();
        let selected =
            named.zip(parts).filter(|(_, part)| self.part.is_none_or(|wanted| wanted.0 == *part));
        selected.map(|(one, _)| one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_patches_exactly_once() {
        let all: Vec<_> = (0..217).map(|number| format!("module/defect-{number}")).collect();
        let mut selected = Vec::new();
        for number in 0..PARTS {
            let selection = Selection { part: Some(Part(number)), ..Selection::default() };
            let part = selection.of(all.clone(), String::as_str);
            assert!((21..=22).contains(&part.len()));
            selected.extend(part);
        }
        selected.sort();
        let mut sorted = all.clone();
        sorted.sort();
        assert_eq!(selected, sorted);
    }

    #[test]
    fn pattern_selects_matching_names() {
        let all = vec!["a/lost", "a/found", "b/lost"];
        let selection = Selection { pattern: "lost".to_owned(), part: None };
        assert_eq!(selection.of(all, |name| name), ["a/lost", "b/lost"]);
    }

    #[test]
    fn part_is_a_number_below_ten() {
        assert_eq!("7".parse(), Ok(Part(7)));
        assert!("10".parse::<Part>().is_err() && "x".parse::<Part>().is_err());
    }
}
