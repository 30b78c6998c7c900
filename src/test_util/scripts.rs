//! Sources of the Lua scripts, for a model of a server that recognizes them by their text.

/// Sets all keys, or none.
pub const ACQUIRE: &str = include_str!("../wire/scripts/acquire.lua");

/// Sets one key and increments its fencing counter.
pub const ACQUIRE_FENCED: &str = include_str!("../wire/scripts/acquire_fenced.lua");

/// Extends keys with the client's value.
pub const EXTEND: &str = include_str!("../wire/scripts/extend.lua");

/// Calls another script and updates the fencing counters.
pub const FENCED: &str = include_str!("../wire/scripts/fenced.lua");

/// Reads a key's value and remaining TTL.
pub const READ: &str = include_str!("../wire/scripts/read.lua");

/// Deletes keys with a given value, or replaces the value.
pub const RELEASE: &str = include_str!("../wire/scripts/release.lua");
