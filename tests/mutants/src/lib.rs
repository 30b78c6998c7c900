//! Mutation tests of the library. Each patch in `patches/` adds a plausible defect to `src/`, and names the rule that
//! it breaks and the tests that must detect it.
//!
//! A patch looks like this:
//!
//! ```text
//! what: A lease that is dropped is not released.
//! why it matters: Its key stays until it expires.
//! rule: cancellation
//! tier: unit
//! test: lease::tests::drop_releases_the_keys
//!
//! file: src/lease/mod.rs
//! in: Lease::drop
//! - state.leave() == 0
//! + state.leave() == usize::MAX
//! ```
//!
//! [`Header`] describes the lines before `file:`. An `in:` line names the function whose body the lines below it change,
//! by module, type and name. Lines without `in:` change a Lua file. A patch can have several `file:` and `in:` lines.
//!
//! The tokens of the `-` lines must occur exactly once in the function. The `+` lines replace these tokens; without `+`
//! lines, the tokens are removed. A blank line separates two replacements. Comments, white space, line breaks and
//! trailing commas are ignored. Brackets are balanced in the `-` lines of a Rust file.
//!
//! The program copies the tree and writes all patches into the copy ([`mutated_files`]): each changed function contains
//! its original body and one body per patch, and an environment variable chooses between them. So one build per tier
//! contains all defects, and the library itself has no such switch. This is why a patch cannot change a constant, a
//! type, a `const fn`, or a function that returns `impl Trait`: change a function that uses it instead.

mod function;
mod header;
mod mutated;
mod patch;
mod replacement;
mod rules;
mod selection;
mod tier;
mod timed_command;
mod token;
mod tree;
mod verdict;

pub use header::{Header, RULES};
pub use mutated::{NUMBER, mutated_files};
pub use patch::{Patch, Section, all};
pub use rules::rules_table;
pub use selection::{changed_since, commit_number, is_touched, missing_tests};
pub use tier::Tier;
pub use timed_command::{CommandResult, End, run_with_timeout};
pub use token::{Language, tokens};
pub use tree::copy_tree;
pub use verdict::{Verdict, judge};
