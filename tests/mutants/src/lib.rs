//! Mutations of the product: each patch below `patches/` is one plausible defect of `src/`, and names the tier
//! of tests that must catch it.
//!
//! A patch is applied to a copy of the tree, so that the product knows nothing of it. It begins with lines of
//! `key: value`, which `git apply` and `patch -p1` skip; see [`Header`].

mod bound;
mod header;
mod hunk;
mod patch;
mod selection;
mod table;
mod tier;
mod tree;
mod verdict;

pub use bound::{Ended, Played, play};
pub use header::Header;
pub use hunk::Hunk;
pub use patch::{Patch, all};
pub use selection::{Part, Selection};
pub use table::Row;
pub use tier::{Job, Tier};
pub use tree::Tree;
pub use verdict::{Verdict, judge};
