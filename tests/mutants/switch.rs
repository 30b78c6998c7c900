//! Module of the mutated copy of the library. It contains the defect of one patch, whose number is in the environment
//! variable `QUORLOCK_MUTANT`. Without the variable, the copy behaves like the library.

use std::env;
use std::sync::LazyLock;

static ACTIVE: LazyLock<u16> = LazyLock::new(|| {
    env::var("QUORLOCK_MUTANT").map_or(0, |number| number.parse().expect("the number of a patch"))
});

/// Returns true if the process contains the defect of patch `number`.
pub(crate) fn is(number: u16) -> bool {
    *ACTIVE == number
}

/// Returns the variant of the active patch, or `original` if that patch does not change this text.
pub(crate) fn text(original: &'static str, variants: &[(u16, &'static str)]) -> &'static str {
    variants.iter().find(|(number, _)| is(*number)).map_or(original, |(_, text)| text)
}
