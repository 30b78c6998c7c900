//! States in which a server refuses commands, and the text of its errors.

/// A state in which a server refuses commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A script exceeds its time limit. The server replies `BUSY` to all commands except
    /// authentication and `SCRIPT KILL`.
    Busy,
    /// The server is loading its data set. It replies `LOADING` to commands that access keys.
    Loading,
    /// The server is a replica without a connection to its master. It replies `READONLY` to writes,
    /// and serves reads.
    ReadOnly,
    /// The server's memory is full, and no key may be evicted. The server replies `OOM` to commands
    /// that may allocate memory.
    OutOfMemory,
    /// The server failed to save a snapshot. It replies `MISCONF` to writes and to `PING`.
    Misconf,
    /// The server is a replica without a connection to its master, and does not serve stale data. It
    /// replies `READONLY` to writes, and `MASTERDOWN` to reads.
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
pub(crate) const NO_FLOAT: &str = "ERR value is not a valid float";
pub(crate) const NO_INTEGER: &str = "ERR value is not an integer or out of range";
