//! One place that a patch changes.

/// What stands there before and after, with the lines around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// Where it stood when the patch was made, counted from 0.
    line: usize,
    before: Vec<String>,
    after: Vec<String>,
}

impl Hunk {
    /// Reads the hunks of a diff that begins with the first `@@`.
    pub(crate) fn parse_all(diff: &str) -> Result<Vec<Self>, String> {
        let mut hunks: Vec<Self> = Vec::new();
        for line in diff.lines() {
            if let Some(place) = line.strip_prefix("@@ -") {
                let number =
                    place.split([',', ' ']).next().and_then(|number| number.parse::<usize>().ok());
                let number = number.ok_or_else(|| format!("no place: {line}"))?;
                hunks.push(Self {
                    line: number.saturating_sub(1),
                    before: Vec::new(),
                    after: Vec::new(),
                });
                continue;
            }
            let hunk = hunks.last_mut().ok_or("no hunk")?;
            let (sign, text) = line.split_at_checked(1).unwrap_or((" ", ""));
            if matches!(sign, " " | "-") {
                hunk.before.push(text.to_owned());
            }
            match sign {
                " " | "+" => hunk.after.push(text.to_owned()),
                "-" => {}
                _ => return Err(format!("neither kept, added nor removed: {line}")),
            }
        }
        Ok(hunks)
    }

    /// Makes the change in `lines`. `moved` is by how many lines earlier hunks have moved this one; returns by
    /// how many the next is.
    ///
    /// # Errors
    /// If what stood there stands there no more, or if it is not clear where.
    pub(crate) fn apply(&self, lines: &mut Vec<String>, moved: isize) -> Result<isize, String> {
        let length = self.before.len();
        let stands_at = |at: usize| lines.get(at..at + length) == Some(&*self.before);
        let expected = self.line.saturating_add_signed(moved);
        let at = if stands_at(expected) {
            expected
        } else {
            let mut places = (0..lines.len()).filter(|at| stands_at(*at));
            match (places.next(), places.next()) {
                (Some(at), None) => at,
                (None, _) => return Err(format!("not found: {:?}", self.removed())),
                (Some(_), Some(_)) => return Err(format!("found twice: {:?}", self.removed())),
            }
        };
        lines.splice(at..at + length, self.after.iter().cloned());
        let offset = |to: usize, from: usize| to.cast_signed() - from.cast_signed();
        Ok(offset(at, self.line) + offset(self.after.len(), length))
    }

    /// The first line that it takes away, to tell it by.
    fn removed(&self) -> &str {
        let gone = self.before.iter().find(|line| !self.after.contains(line));
        gone.or(self.before.first()).map_or("", |line| line.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "@@ -2,3 +2,4 @@\n b\n-c\n+C\n+CC\n d\n@@ -6,2 +7,1 @@\n-f\n g\n";

    fn applied(text: &str) -> Result<String, String> {
        let mut lines: Vec<_> = text.split(' ').map(str::to_owned).collect();
        let mut moved = 0;
        for hunk in Hunk::parse_all(DIFF)? {
            moved = hunk.apply(&mut lines, moved)?;
        }
        Ok(lines.join(" "))
    }

    #[test]
    fn hunks_follow_the_lines_that_they_are_about() {
        assert_eq!(applied("a b c d e f g").as_deref(), Ok("a b C CC d e g"));
        assert_eq!(applied("x y a b c d e f g").as_deref(), Ok("x y a b C CC d e g"));
        assert_eq!(applied("a b c d x y f g e").as_deref(), Ok("a b C CC d x y g e"));
    }

    #[test]
    fn a_hunk_that_is_nowhere_or_anywhere_is_refused() {
        assert_eq!(applied("a b x d e f g"), Err("not found: \"c\"".to_owned()));
        assert_eq!(applied("b c d b c d f g"), Err("found twice: \"c\"".to_owned()));
    }
}
