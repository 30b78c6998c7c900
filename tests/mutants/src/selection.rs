//! Which of the patches are played.

use std::str::FromStr;

/// Number of parts into which the patches are divided.
const PARTS: u64 = 10;

/// One of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part(u64);

impl FromStr for Part {
    type Err = String;

    /// Parses a number below [`PARTS`].
    fn from_str(word: &str) -> Result<Self, String> {
        match word.parse() {
            Ok(number) if number < PARTS => Ok(Self(number)),
            _ => Err(format!("a number below {PARTS}")),
        }
    }
}

impl Part {
    /// Its number.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// Which of the patches are played.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Those whose names have this in them; all if it is empty.
    pub pattern: String,
    /// Of those one part.
    pub part: Option<Part>,
}

impl Selection {
    /// Takes those out of `all`, in their order.
    pub fn of<T>(&self, all: Vec<T>, name: impl Fn(&T) -> &str) -> Vec<T> {
        let named = all.into_iter().filter(|one| name(one).contains(&self.pattern));
        let parts = (0..PARTS).cycle();
        let taken =
            named.zip(parts).filter(|(_, part)| self.part.is_none_or(|wanted| wanted.0 == *part));
        taken.map(|(one, _)| one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_all_and_each_is_played_once() {
        let all: Vec<_> = (0..217).map(|number| format!("room/defect-{number}")).collect();
        let mut taken = Vec::new();
        for number in 0..PARTS {
            let selection = Selection { part: Some(Part(number)), ..Selection::default() };
            let part = selection.of(all.clone(), String::as_str);
            assert!((21..=22).contains(&part.len()));
            taken.extend(part);
        }
        taken.sort();
        let mut sorted = all.clone();
        sorted.sort();
        assert_eq!(taken, sorted);
    }

    #[test]
    fn a_pattern_takes_what_has_it_in_its_name() {
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
