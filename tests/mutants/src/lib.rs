//! Mutation tests of the library. Each patch in `patches/` adds a plausible defect to `src/`, and names the tier of
//! tests that must detect the defect.
//!
//! The program applies each patch to a copy of the tree. A patch looks like this:
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
//! [`Header`] describes the lines before `file:`. An `in:` line names the item of the file that the lines below it
//! change: a function (by module, type and name), a constant, or a type with all its `impl` blocks. Without `in:`, the
//! lines change the whole file, as in Lua scripts.
//!
//! The tokens of the `-` lines must occur exactly once in the item. The `+` lines replace these tokens; without `+`
//! lines, the tokens are removed. A blank line separates two replacements. Comments, white space, line breaks and
//! trailing commas are ignored.
//!
//! After a file is renamed, change `file:`. After an item is renamed, change `in:`.

mod header;
mod item;
mod patch;
mod replacement;
mod rules;
mod selection;
mod table;
mod tier;
mod timed_command;
mod token;
mod tree;
mod verdict;

pub use header::Header;
pub use patch::{Patch, all};
pub use rules::rules_table;
pub use selection::{Part, Selection};
pub use table::Row;
pub use tier::{Job, Tier};
pub use timed_command::{CommandResult, End, run_with_timeout};
pub use token::{Language, Token, tokens};
pub use tree::Tree;
pub use verdict::{Verdict, judge};
