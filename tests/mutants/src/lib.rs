//! Mutations of the product: each patch below `patches/` is one plausible defect of `src/`, and names the tier
//! of tests that must catch it.
//!
//! The player applies patches to a copy of the tree. The text of a patch:
//!
//! ```text
//! what: A lease that is dropped is not released.
//! why it matters: Its key stays until it expires.
//! tier: unit
//! test: lease::tests::drop_releases_the_keys
//!
//! file: src/lease/mod.rs
//! in: Lease::drop
//! - state.leave() == 0
//! + state.leave() == usize::MAX
//! ```
//!
//! The lines before `file:` are described at [`Header`]. `in:` names an item of the file: a function by module, type
//! and name, a constant, or a type with all its `impl` blocks. It is valid for the lines below it; without it the
//! whole file is meant, as in Lua scripts. The tokens of the `-` lines must be in that item exactly once, and the `+`
//! lines replace them; a patch without `+` lines removes them. A blank line separates two replacements. Comments, white
//! space, line breaks and trailing commas do not matter.
//!
//! A renamed file is followed by changing `file:`, a renamed function by changing `in:`.

mod bound;
mod header;
mod item;
mod patch;
mod replacement;
mod rules;
mod selection;
mod table;
mod tier;
mod token;
mod tree;
mod verdict;

pub use bound::{Ended, Played, play};
pub use header::Header;
pub use patch::{Patch, all};
pub use rules::rules_table;
pub use selection::{Part, Selection};
pub use table::Row;
pub use tier::{Job, Tier};
pub use token::{Language, Token, tokens};
pub use tree::Tree;
pub use verdict::{Verdict, judge};
