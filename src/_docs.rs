//! Longer texts, as they stand in the repository's `docs` folder.

#[doc = include_str!("../docs/DESIGN.md")]
pub mod design {}

#[doc = include_str!("../docs/PERFORMANCE.md")]
pub mod performance {}
