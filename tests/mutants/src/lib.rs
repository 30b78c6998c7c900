//! Mutations of the library: each patch below `patches/` is a plausible defect of `src/`, and names
//! the tier of tests that must detect it.
//!
//! The program applies patches to a copy of the tree. Text of a patch:
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
//! [`Header`] describes the lines before `file:`. `in:` names an item of the file: a function by
//! module, type and name, a constant, or a type with all its `impl` blocks. It applies to the lines
//! below it. Without `in:` the whole file is searched, as in Lua scripts. The tokens of the `-`
//! lines must occur exactly once in the item, and the `+` lines replace them. A patch without `+`
//! lines removes the tokens. A blank line separates two replacements. Comments, white space, line
//! breaks and trailing commas do not matter.
//!
//! After a file is renamed, change `file:`. After an item is renamed, change `in:`.

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

pub use bound::{CommandResult, End, run_bounded};
pub use header::Header;
pub use patch::{Patch, all};
pub use rules::rules_table;
pub use selection::{Part, Selection};
pub use table::Row;
pub use tier::{Job, Tier};
pub use token::{Language, Token, tokens};
pub use tree::Tree;
pub use verdict::{Verdict, judge};
