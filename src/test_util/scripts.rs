//! Sources of the client's Lua scripts. The server model of `quorlock-test` recognizes scripts by their source.

/// Script that sets all keys of a lock, or none.
pub const ACQUIRE: &str = include_str!("../wire/scripts/acquire.lua");

/// Script that sets the first free key of several.
pub const ACQUIRE_ANY: &str = include_str!("../wire/scripts/acquire_any.lua");

/// Script that sets one key and increments its fencing counter.
pub const ACQUIRE_FENCED: &str = include_str!("../wire/scripts/acquire_fenced.lua");

/// Script that extends the keys of a lock, if each key contains the lock's value.
pub const EXTEND: &str = include_str!("../wire/scripts/extend.lua");

/// Script that runs another script and updates the fencing counters.
pub const FENCED: &str = include_str!("../wire/scripts/fenced.lua");

/// Script that reads the value and the remaining TTL of a key.
pub const READ: &str = include_str!("../wire/scripts/read.lua");

/// Script that deletes the keys with a given value, or replaces the value.
pub const RELEASE: &str = include_str!("../wire/scripts/release.lua");

/// Script that deletes the one key, of several, that has a given value.
pub const RELEASE_ANY: &str = include_str!("../wire/scripts/release_any.lua");
