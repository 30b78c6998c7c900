//! Errors for invalid settings.

use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// Invalid settings, alone or in combination.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No node was given.
    #[error("no node given: pass three or five addresses to nodes()")]
    NoNodes,
    /// More nodes were given than a quorum supports.
    #[error("{given} nodes given, at most {most} are supported: use three or five")]
    TooManyNodes {
        /// Number of nodes given.
        given: usize,
        /// Maximum number of nodes.
        most: usize,
    },
    /// The same node was given twice: its vote would count twice.
    #[error("node {name} is given twice: each node must be a different server")]
    SameNode {
        /// Address of the node.
        name: String,
    },
    /// The address of a node is not a valid Redis URL.
    #[error("invalid URL of node {position} ({url}): {reason}")]
    BadUrl {
        /// Position of the node in the list, starting at 1.
        position: usize,
        /// Scheme and host of the URL, or its length if it has none.
        url: String,
        /// Why the URL is invalid.
        reason: String,
    },
    /// The URL of a node has an unknown parameter. Ignoring it could select another database, or drop a limit.
    #[error(
        "unknown parameter ({parameter}) in the URL of node {position} ({url}): remove it; supported are {accepted}"
    )]
    UnknownUrlParameter {
        /// Position of the node in the list, starting at 1.
        position: usize,
        /// Scheme and host of the URL.
        url: String,
        /// Name of the parameter, or its length if it does not look like a name.
        parameter: String,
        /// Names of the accepted parameters.
        accepted: String,
    },
    /// The address is a `rediss://` URL, but quorlock was built without TLS.
    #[error("node {url} requires TLS: build quorlock with the feature `tls-rustls`")]
    TlsNotEnabled {
        /// The address, without user and password.
        url: String,
    },
    /// A `redis::Client` has its own certificates, which cannot be read.
    #[error(
        "cannot read the certificates of the redis::Client for node {name}: pass the address to \
         nodes() as a rediss:// URL, and the certificates to tls()"
    )]
    OpaqueTls {
        /// Address of the node.
        name: String,
    },
    /// A TLS file cannot be used.
    #[error("invalid {setting} {}: {reason}", path.display())]
    BadTlsFile {
        /// Name of the setting: `tls_ca_cert_file`, `tls_cert_file` or `tls_key_file`.
        setting: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The I/O error, or what is missing in the file.
        reason: String,
    },
    /// A TLS certificate was given without its key, or the reverse.
    #[error("{missing} is not set: tls_cert_file requires tls_key_file, and vice versa")]
    IncompleteTlsFiles {
        /// Name of the missing setting.
        missing: &'static str,
    },
    /// A ttl is shorter than 1 ms or longer than 100 years.
    #[error("invalid {setting} {ttl:?}: must be between 1 ms and 100 years")]
    BadTtl {
        /// Name of the setting: `ttl` (also for an extension), `max_ttl` or `token_ttl`.
        setting: &'static str,
        /// The given ttl.
        ttl: Duration,
    },
    /// The ttl of a lock or an extension exceeds `max_ttl`, for which the restart guard excludes restarted nodes.
    #[error(
        "ttl {ttl:?} exceeds max_ttl {max_ttl:?}: reduce the ttl, or first increase \
         max_ttl() on all clients of these nodes"
    )]
    TtlExceedsMax {
        /// The given ttl.
        ttl: Duration,
        /// The maximum for all clients of the nodes; see [`max_ttl`](crate::Builder::max_ttl).
        max_ttl: Duration,
    },
    /// [`ensure`](crate::LeaseRef::ensure): the requested validity exceeds what `max_ttl` allows.
    #[error(
        "ensure({validity:?}) exceeds what max_ttl {max_ttl:?} allows: ensure a shorter \
         validity, or first increase max_ttl() on all clients of these nodes"
    )]
    EnsureExceedsMax {
        /// The requested validity.
        validity: Duration,
        /// The maximum ttl for all clients of the nodes; see [`max_ttl`](crate::Builder::max_ttl). It includes the
        /// drift allowance.
        max_ttl: Duration,
    },
    /// `at_least` exceeds the ttl. The nodes would free the lock earlier if the holder crashes.
    #[error(
        "at_least({at_least:?}) exceeds ttl {ttl:?}: increase ttl(), so that the lock \
         also lasts this long if its holder crashes"
    )]
    AtLeastExceedsTtl {
        /// The given duration.
        at_least: Duration,
        /// The ttl of the acquire.
        ttl: Duration,
    },
    /// A fencing counter could expire before the lease that uses its token.
    #[error(
        "token_ttl {token_ttl:?} is shorter than max_ttl {max_ttl:?}: increase \
         token_ttl(), for example to one day; counters must outlive leases"
    )]
    TokenTtlBelowMax {
        /// The given ttl of the counters.
        token_ttl: Duration,
        /// The maximum ttl of a lease; see [`max_ttl`](crate::Builder::max_ttl).
        max_ttl: Duration,
    },
    /// The drift factor is not in the range 0 to 1.
    #[error("invalid drift factor {factor}: must be at least 0 and less than 1")]
    BadDriftFactor {
        /// The given factor.
        factor: f64,
    },
    /// The drift allowance is not shorter than the ttl.
    #[error(
        "ttl {ttl:?} must exceed its drift allowance {drift:?}: increase ttl(), or reduce \
         drift_factor() or drift_constant()"
    )]
    DriftExceedsTtl {
        /// The given ttl.
        ttl: Duration,
        /// The drift allowance for this ttl.
        drift: Duration,
    },
    /// The node timeout is not shorter than the validity: waiting for one slow node could use it up.
    #[error(
        "node_timeout {node_timeout:?} must be shorter than {validity:?}, the validity of ttl \
         {ttl:?}: reduce node_timeout() or increase ttl()"
    )]
    NodeTimeoutExceedsValidity {
        /// The node timeout.
        node_timeout: Duration,
        /// The given ttl.
        ttl: Duration,
        /// The ttl minus the drift allowance.
        validity: Duration,
    },
    /// `max_hold` is not longer than the node timeout: the lease could end while it is being acquired.
    #[error(
        "max_hold {max_hold:?} must exceed node_timeout {node_timeout:?}: pass a longer \
         duration to auto_extend(), or use auto_extend_forever()"
    )]
    MaxHoldTooShort {
        /// The argument of [`auto_extend`](crate::Acquire::auto_extend).
        max_hold: Duration,
        /// The node timeout.
        node_timeout: Duration,
    },
    /// No resource was given.
    #[error("no resource given: pass at least one resource to acquire_all()")]
    NoResources,
    /// Too many resources were given for one lease. They would occupy a node for too long.
    #[error("{given} resources given, at most {most} can be locked together")]
    TooManyResources {
        /// Number of resources given.
        given: usize,
        /// Maximum number of resources.
        most: usize,
    },
    /// [`adopt`](crate::Redlock::adopt): the value belongs to a lease of several resources. Adopting a single one is
    /// not supported, because it would break that lease.
    #[error(
        "cannot adopt one of the {resources} resources of a lease: let its \
         holder release them, and acquire them with acquire_all()"
    )]
    AdoptsSet {
        /// Number of resources of the lease, according to its value.
        resources: usize,
    },
    /// The metadata, which is sent with every command, is too long.
    #[error("metadata has {length} bytes, at most {most} are allowed: use a shorter text")]
    LongMetadata {
        /// Length in bytes.
        length: usize,
        /// Maximum length in bytes.
        most: usize,
    },
    /// The key of a resource is longer than all servers and proxies support. Some would close the connection.
    #[error(
        "the key of the resource \"{resource}\" has {length} bytes with its prefix, at most {most} are \
         allowed: use a shorter name"
    )]
    LongResource {
        /// The resource; escaped, and truncated if long.
        resource: String,
        /// Length of the key in bytes, including the prefix.
        length: usize,
        /// Maximum length of a key in bytes.
        most: usize,
    },
    /// The keys of the resources are too long for one command.
    #[error(
        "the keys of {resources} resources have {length} bytes together, at most {most} are allowed: \
         use shorter names, or lock fewer resources together"
    )]
    LongResources {
        /// Number of resources.
        resources: usize,
        /// Total length of the keys in bytes, including prefixes.
        length: usize,
        /// Maximum total length in bytes.
        most: usize,
    },
    /// [`adopt`](crate::Redlock::adopt): the value is longer than any lease's value.
    #[error("cannot adopt a value of {length} bytes: values of leases have at most {most} bytes")]
    LongValue {
        /// Length in bytes.
        length: usize,
        /// Maximum length in bytes.
        most: usize,
    },
    /// The key of the resource contains the mark of quorlock's own keys, such as fencing counters.
    #[error(
        "cannot lock the resource \"{resource}\": no key may contain \"#quorlock:\", which is \
         reserved for fencing counters and other internal keys; use another name"
    )]
    ReservedResource {
        /// The resource; escaped, and truncated if long.
        resource: String,
    },
    /// With this prefix, every key would contain the mark of quorlock's own keys.
    #[error(
        "invalid key_prefix \"{prefix}\": no key may contain \"#quorlock:\", which is \
         reserved for fencing counters and other internal keys; use another prefix"
    )]
    ReservedPrefix {
        /// The prefix; escaped, and truncated if long.
        prefix: String,
    },
    /// A fencing token was requested, but the key does not allow a counter in the same cluster slot.
    #[error(
        "no fencing token for the resource \"{resource}\": its key is empty, or has braces that \
         form no hash tag, so its counter cannot be in the same cluster slot; remove the braces, or \
         start with a hash tag, such as {{user:7}}/inbox"
    )]
    NoCounter {
        /// The resource; escaped, and truncated if long.
        resource: String,
    },
    /// [`Config::from_env`](crate::Config::from_env): a variable with the prefix is not a known setting.
    #[error("unknown environment variable {name}: unset it, or use one of {known}")]
    UnknownVariable {
        /// Name of the variable.
        name: String,
        /// Names of the known variables.
        known: String,
    },
    /// [`Config::from_env`](crate::Config::from_env): a required variable is missing.
    #[error(
        "environment variable {name} is not set: set it to the URLs of the nodes, such as \
         redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3"
    )]
    MissingVariable {
        /// Name of the variable.
        name: String,
    },
    /// [`Config::from_env`](crate::Config::from_env): a variable has an invalid value.
    #[error("invalid value of environment variable {name}: {reason}")]
    BadVariable {
        /// Name of the variable.
        name: String,
        /// The valid values. The actual value is not included.
        reason: String,
    },
    /// [`Config::from_env`](crate::Config::from_env): the prefix is empty, so every variable would be a setting.
    #[error("the prefix of environment variables is empty: use a prefix such as QUORLOCK")]
    EmptyPrefix,
    /// A [`Config`](crate::Config) has both `owner` and `metadata`, which set the same text.
    #[error("owner and metadata are both set: unset one of them")]
    OwnerAndMetadata,
    /// The operating system refused to start the thread of a blocking client.
    #[error("cannot start the thread of a blocking client: {reason}")]
    NoThread {
        /// The operating system's error.
        reason: String,
    },
    /// [`release_after`](crate::Lease::release_after): the cool-down exceeds `max_ttl`, for which the restart guard
    /// excludes restarted nodes. The cool-down was limited to `max_ttl`.
    #[error(
        "cool-down {cool_down:?} exceeds max_ttl {max_ttl:?} and was limited to it: use a shorter \
         cool-down, or first increase max_ttl() on all clients of these nodes"
    )]
    CoolDownExceedsMax {
        /// The requested cool-down.
        cool_down: Duration,
        /// The maximum for all clients of the nodes; see [`max_ttl`](crate::Builder::max_ttl).
        max_ttl: Duration,
    },
    /// The margin leaves no time to work: the work would be stopped before it starts, or before each renewal.
    #[error(
        "margin {margin:?} leaves no time to work: pass less than {limit:?} to stop_before(), or \
         increase ttl()"
    )]
    MarginTooLong {
        /// The argument of [`stop_before`](crate::Acquire::stop_before).
        margin: Duration,
        /// The margin must be shorter than this.
        limit: Duration,
    },
    /// A timeout is zero, so no operation could succeed.
    #[error("{setting} is zero: no operation could succeed; use a positive duration")]
    ZeroTimeout {
        /// Name of the setting.
        setting: &'static str,
    },
}
