//! What a run is about, and what must never be in it.

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Faults inside the promise, and then none: no two hold at a time, all calls end in time, and
    /// nothing is left behind.
    Promise,
}

impl Mode {
    /// All modes, with their names on the command line.
    pub const ALL: [(&str, Self); 1] = [("promise", Self::Promise)];

    /// True if there is something that must never be; else it is only counted.
    pub fn is_promised(self) -> bool {
        matches!(self, Self::Promise)
    }

    /// Its name on the command line.
    pub fn label(self) -> &'static str {
        Self::ALL.iter().find(|(_, mode)| *mode == self).map_or("", |(label, _)| label)
    }
}
