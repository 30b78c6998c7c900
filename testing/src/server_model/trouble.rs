//! Servers that refuse what they are asked.

/// What is wrong with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It runs a script that takes too long: it answers BUSY to all but logging in and ending that script.
    Busy,
    /// It reads its data back.
    Loading,
    /// It has become a replica, of a server that it cannot reach: it refuses writes, and answers reads.
    ReadOnly,
    /// Its memory is full, and it evicts nothing: it refuses what may need more.
    OutOfMemory,
    /// It could not save a snapshot: it refuses writes, and `PING`.
    Misconf,
    /// It has become such a replica, and refuses reads as well.
    MasterDown,
}

pub(crate) const NOAUTH: &str = "NOAUTH Authentication required.";
pub(crate) const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
pub(crate) const READONLY: &str = "READONLY You can't write against a read only replica.";
pub(crate) const MASTERDOWN: &str =
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
pub(crate) const LOADING: &str = "LOADING Redis is loading the dataset in memory";
pub(crate) const BUSY: &str =
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
pub(crate) const MISCONF: &str = "MISCONF Redis is configured to save RDB snapshots, but it's currently \
     unable to persist to disk. Commands that may modify the data set are disabled, because this instance \
     is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error \
     option). Please check the Redis logs for details about the RDB error.";
pub(crate) const WRONGTYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";
pub(crate) const NO_STRING: &str = "ERR Key should be of string type if conditions are specified";
pub(crate) const NOSCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
pub(crate) const WRONGPASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
pub(crate) const SYNTAX: &str = "ERR syntax error";
pub(crate) const NO_INTEGER: &str = "ERR value is not an integer or out of range";
