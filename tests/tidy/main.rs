//! Tests of rules for the source code that the compiler does not check: names, the order of the modules, import
//! cycles, and the names of tests in documents. See docs/DESIGN.md, section 2.

mod cycles;
mod documents;
mod forbidden_identifiers;
mod imports;
mod layers;
mod names;
mod sources;
mod tokens;
