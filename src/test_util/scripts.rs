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

/// Script that compares the counter of a scheduled job with the number of a period, and can raise it.
pub const PERIOD: &str = include_str!("../wire/scripts/period.lua");

/// Script that reads the value and the remaining TTL of a key.
pub const READ: &str = include_str!("../wire/scripts/read.lua");

/// Script that deletes the keys with a given value, or replaces the value.
pub const RELEASE: &str = include_str!("../wire/scripts/release.lua");

/// Script that deletes the one key, of several, that has a given value.
pub const RELEASE_ANY: &str = include_str!("../wire/scripts/release_any.lua");

/// Script that adds or extends a reader of a lock.
pub const ACQUIRE_SHARED: &str = include_str!("../wire/scripts/acquire_shared.lua");

/// Script that runs another script that sets a lock's key, for a writer of a lock that also has readers.
pub const ACQUIRE_WRITE: &str = include_str!("../wire/scripts/acquire_write.lua");

/// Script that removes a reader from a lock.
pub const RELEASE_SHARED: &str = include_str!("../wire/scripts/release_shared.lua");
