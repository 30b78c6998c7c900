//! Guides from the repository's `docs` folder.
#![allow(clippy::doc_markdown)] // The guides are also read as plain Markdown, without rustdoc.

#[doc = "[SAFETY]: crate::_docs::safety"]
#[doc = ""]
#[doc = include_str!("../docs/COMMAND.md")]
pub mod command {}

#[doc = "[RECIPES]: crate::_docs::recipes"]
#[doc = ""]
#[doc = include_str!("../docs/COMPARE.md")]
pub mod compare {}

// The example in this guide requires the feature `serde`.
#[cfg(any(feature = "serde", not(doctest)))]
#[doc = "[builder]: crate::Builder"]
#[doc = "[config]: crate::Config"]
#[doc = "[acquire]: crate::Acquire"]
#[doc = "[operations]: crate::_docs::operations"]
#[doc = ""]
#[doc = include_str!("../docs/CONFIGURATION.md")]
pub mod configuration {}

#[doc = include_str!("../docs/DESIGN.md")]
pub mod design {}

#[doc = "[FORMAT]: crate::_docs::format"]
#[doc = ""]
#[doc = include_str!("../docs/FENCING.md")]
pub mod fencing {}

#[doc = include_str!("../docs/FORMAT.md")]
pub mod format {}

#[doc = include_str!("../docs/INVARIANTS.md")]
pub mod invariants {}

#[doc = include_str!("../docs/METRICS.md")]
pub mod metrics {}

#[doc = "[COMMAND]: crate::_docs::command"]
#[doc = "[FORMAT]: crate::_docs::format"]
#[doc = "[FENCING]: crate::_docs::fencing"]
#[doc = "[METRICS]: crate::_docs::metrics"]
#[doc = "[SAFETY]: crate::_docs::safety"]
#[doc = "[blind spots]: crate::_docs::safety#what-no-client-can-see"]
#[doc = "[PERFORMANCE]: crate::_docs::performance"]
#[doc = ""]
#[doc = include_str!("../docs/OPERATIONS.md")]
pub mod operations {}

#[doc = include_str!("../docs/PERFORMANCE.md")]
pub mod performance {}

#[doc = "[COMMAND]: crate::_docs::command"]
#[doc = "[FENCING]: crate::_docs::fencing"]
#[doc = "[OPERATIONS]: crate::_docs::operations"]
#[doc = "[TESTING]: https://docs.rs/quorlock-test"]
#[doc = ""]
#[doc = include_str!("../docs/RECIPES.md")]
pub mod recipes {}

#[doc = "[operations]: crate::_docs::operations"]
#[doc = "[metrics]: crate::_docs::metrics"]
#[doc = "[testing]: https://docs.rs/quorlock-test"]
#[doc = ""]
#[doc = include_str!("../docs/PLATFORMS.md")]
pub mod platforms {}

/// Compiles the examples in README.md as doctests. The module is not part of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub mod readme {}

#[doc = "[node set]: crate::_docs::operations#adding-removing-replacing-a-node"]
#[doc = "[clocks at the start]: crate::_docs::operations#the-nodes"]
#[doc = "[lowering]: crate::_docs::operations#lowering-max_ttl"]
#[doc = "[resuming]: crate::_docs::recipes#resuming-a-lock-after-a-crash"]
#[doc = ""]
#[doc = include_str!("../docs/SAFETY.md")]
pub mod safety {}
