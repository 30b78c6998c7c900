//! Errors for invalid settings.

use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// Error returned if a setting is invalid, or if it conflicts with another setting.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No node was given.
    #[error("no node given: pass three or five addresses to nodes()")]
    NoNodes,
    /// More nodes were given than quorlock supports.
    #[error("{given} nodes given, at most {most} are supported: use three or five")]
    TooManyNodes {
        /// Number of nodes given.
        given: usize,
        /// Maximum number of nodes.
        most: usize,
    },
    /// The same node was given twice, so its vote would count twice.
    #[error("node {name} is given twice: each node must be a different server")]
    SameNode {
        /// Address of the node.
        name: String,
    },
    /// The address of a node is not a valid Redis URL.
    #[error("invalid URL of node {position}: {reason}")]
    BadUrl {
        /// Position of the node in the list, starting at 1.
        position: usize,
        /// Reason why the URL is invalid. Contains no part of the URL.
        reason: String,
    },
    /// The URL of a node requires TLS (`rediss://`), but quorlock was built without TLS.
    #[error("node {position} requires TLS: build quorlock with the feature `tls-rustls`")]
    TlsNotEnabled {
        /// Position of the node in the list, starting at 1.
        position: usize,
    },
    /// A file with a TLS certificate or key cannot be read or used.
    #[error("invalid {setting} {}: {reason}", path.display())]
    BadTlsFile {
        /// Name of the setting: `tls_ca_cert_file`, `tls_cert_file` or `tls_key_file`.
        setting: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Reason why the file cannot be used: an I/O error or invalid content.
        reason: String,
    },
    /// Only one of `tls_cert_file` and `tls_key_file` is set, but each requires the other.
    #[error("{missing} is not set: tls_cert_file requires tls_key_file, and vice versa")]
    IncompleteTlsFiles {
        /// Name of the missing setting.
        missing: &'static str,
    },
    /// A TTL is shorter than 1 ms or longer than 100 years.
    #[error("invalid {setting} {ttl:?}: must be between 1 ms and 100 years")]
    BadTtl {
        /// Name of the setting: `ttl`, `max_ttl` or `token_ttl`. An invalid TTL of an extension is reported as `ttl`.
        setting: &'static str,
        /// The requested TTL.
        ttl: Duration,
    },
    /// The TTL of a lock or of an extension exceeds `max_ttl`. The restart guard excludes a restarted node only until
    /// every lock with a TTL of up to `max_ttl` has expired, so no lock may have a longer TTL.
    #[error(
        "ttl {ttl:?} exceeds max_ttl {max_ttl:?}: reduce the ttl, or first increase \
         max_ttl() on all clients of these nodes"
    )]
    TtlExceedsMax {
        /// The requested TTL.
        ttl: Duration,
        /// Maximum TTL for all clients of the nodes; see [`max_ttl`](crate::Builder::max_ttl).
        max_ttl: Duration,
    },
    /// A call to [`ensure`](crate::LeaseRef::ensure) requested a longer validity than `max_ttl` allows.
    #[error(
        "ensure({validity:?}) exceeds what max_ttl {max_ttl:?} allows: ensure a shorter \
         validity, or first increase max_ttl() on all clients of these nodes"
    )]
    EnsureExceedsMax {
        /// The requested validity.
        validity: Duration,
        /// Maximum TTL for all clients of the nodes; see [`max_ttl`](crate::Builder::max_ttl). The longest possible
        /// validity is this TTL minus the drift allowance.
        max_ttl: Duration,
    },
    /// `at_least` exceeds the TTL. If the holder crashed, the lock would expire before `at_least` has elapsed.
    #[error(
        "at_least({at_least:?}) exceeds ttl {ttl:?}: increase ttl(), so that the lock \
         also lasts this long if its holder crashes"
    )]
    AtLeastExceedsTtl {
        /// Argument passed to [`at_least`](crate::Acquire::at_least).
        at_least: Duration,
        /// The TTL of the acquire.
        ttl: Duration,
    },
    /// `token_ttl` is shorter than `max_ttl`, so a fencing counter could expire before the lease that uses its token.
    #[error(
        "token_ttl {token_ttl:?} is shorter than max_ttl {max_ttl:?}: increase \
         token_ttl(), for example to one day; counters must outlive leases"
    )]
    TokenTtlBelowMax {
        /// The requested TTL of the fencing counters.
        token_ttl: Duration,
        /// Maximum TTL of a lease; see [`max_ttl`](crate::Builder::max_ttl).
        max_ttl: Duration,
    },
    /// The drift factor is negative, not less than 1, or not a number.
    #[error("invalid drift factor {factor}: must be at least 0 and less than 1")]
    BadDriftFactor {
        /// The requested drift factor.
        factor: f64,
    },
    /// The TTL is not longer than its drift allowance, so the lease would have no validity.
    #[error(
        "ttl {ttl:?} must exceed its drift allowance {drift:?}: increase ttl(), or reduce \
         drift_factor() or drift_constant()"
    )]
    DriftExceedsTtl {
        /// The requested TTL.
        ttl: Duration,
        /// Drift allowance for this TTL.
        drift: Duration,
    },
    /// The node timeout is not shorter than the validity, so waiting for a single slow node could use up the validity.
    #[error(
        "node_timeout {node_timeout:?} must be shorter than {validity:?}, the validity of ttl \
         {ttl:?}: reduce node_timeout() or increase ttl()"
    )]
    NodeTimeoutExceedsValidity {
        /// Node timeout of the client.
        node_timeout: Duration,
        /// The requested TTL.
        ttl: Duration,
        /// Validity of a lease with this TTL: the TTL minus the drift allowance.
        validity: Duration,
    },
    /// `max_hold` is not longer than the node timeout, so the lease could end while it is being acquired.
    #[error(
        "max_hold {max_hold:?} must exceed node_timeout {node_timeout:?}: pass a longer \
         duration to auto_extend(), or use auto_extend_forever()"
    )]
    MaxHoldTooShort {
        /// Argument passed to [`auto_extend`](crate::Acquire::auto_extend).
        max_hold: Duration,
        /// Node timeout of the client.
        node_timeout: Duration,
    },
    /// [`acquire_all`](crate::Redlock::acquire_all) or [`acquire_any`](crate::Redlock::acquire_any) was called without a
    /// resource.
    #[error("no resource given: pass at least one resource")]
    NoResources,
    /// Too many resources were given to one acquire. A node processes no other commands while it locks all resources of
    /// a lease, so a large number of resources would block the node for too long.
    #[error("{given} resources given, at most {most} are allowed in one acquire")]
    TooManyResources {
        /// Number of resources given.
        given: usize,
        /// Maximum number of resources.
        most: usize,
    },
    /// [`adopt`](crate::Redlock::adopt) was called with the value of a lease of several resources. Adopting only one of
    /// these resources is not supported, because it would break the lease.
    #[error(
        "cannot adopt one of the {resources} resources of a lease: let its \
         holder release them, and acquire them with acquire_all()"
    )]
    AdoptsSet {
        /// Number of resources recorded in the lease's value.
        resources: usize,
    },
    /// The metadata is too long. The length is limited because every command of a lease contains the metadata.
    #[error("metadata has {length} bytes, at most {most} are allowed: use a shorter text")]
    LongMetadata {
        /// Length of the metadata in bytes.
        length: usize,
        /// Maximum length of metadata in bytes.
        most: usize,
    },
    /// The key of a resource is too long. Some servers and proxies would close the connection.
    #[error(
        "the key of the resource \"{resource}\" has {length} bytes with its prefix, at most {most} are \
         allowed: use a shorter name"
    )]
    LongResource {
        /// Name of the resource, escaped, and truncated if it is long.
        resource: String,
        /// Length of the key in bytes, including the prefix.
        length: usize,
        /// Maximum length of a key in bytes.
        most: usize,
    },
    /// The total length of the keys of a lease is too large for a single command.
    #[error(
        "the keys of {resources} resources have {length} bytes together, at most {most} are allowed: \
         use shorter names, or lock fewer resources together"
    )]
    LongResources {
        /// Number of resources.
        resources: usize,
        /// Total length of the keys in bytes, including their prefixes.
        length: usize,
        /// Maximum total length in bytes.
        most: usize,
    },
    /// [`adopt`](crate::Redlock::adopt) was called with a value that is longer than the value of any lease.
    #[error("cannot adopt a value of {length} bytes: values of leases have at most {most} bytes")]
    LongValue {
        /// Length of the value in bytes.
        length: usize,
        /// Maximum length of a value in bytes.
        most: usize,
    },
    /// The key of the resource contains `#quorlock:`, which is reserved for internal keys of quorlock, such as fencing
    /// counters.
    #[error(
        "invalid resource name \"{resource}\": no key may contain \"#quorlock:\", which is \
         reserved for fencing counters and other internal keys; use another name"
    )]
    ReservedResource {
        /// Name of the resource, escaped, and truncated if it is long.
        resource: String,
    },
    /// The key prefix contains `#quorlock:`, which is reserved for internal keys of quorlock, such as fencing counters.
    #[error(
        "invalid key_prefix \"{prefix}\": no key may contain \"#quorlock:\", which is \
         reserved for fencing counters and other internal keys; use another prefix"
    )]
    ReservedPrefix {
        /// Key prefix, escaped, and truncated if it is long.
        prefix: String,
    },
    /// The resource's key cannot have a fencing counter: it is empty, or its braces form no hash tag.
    #[error(
        "the resource \"{resource}\" cannot have a fencing token: its key is empty, or its braces form no \
         hash tag; remove the braces, or start with a hash tag, such as {{user:7}}/inbox"
    )]
    NoCounter {
        /// Name of the resource, escaped, and truncated if it is long.
        resource: String,
    },
    /// The number of permits of a [semaphore](crate::Redlock::semaphore) is zero, or larger than the maximum.
    #[error("{permits} permits given: a semaphore has 1 to {most} permits")]
    BadPermits {
        /// Number of permits given.
        permits: usize,
        /// Maximum number of permits.
        most: usize,
    },
    /// The name of a [semaphore](crate::Redlock::semaphore) is empty, or its braces form no hash tag. The keys of its
    /// permits could therefore not be in the same slot of a cluster.
    #[error(
        "the semaphore \"{name}\" cannot have permits: its key is empty, or its braces form no hash tag; \
         remove the braces, or start with a hash tag, such as {{user:7}}/downloads"
    )]
    BadSemaphore {
        /// Name of the semaphore, escaped, and truncated if it is long.
        name: String,
    },
    /// The renew deadline of an [election](crate::ElectionBuilder::renew_deadline) is too short or too long for its TTL.
    #[error(
        "renew_deadline {renew_deadline:?} must be longer than {longer_than:?} and at most {most:?} for \
         ttl {ttl:?}: change renew_deadline() or ttl()"
    )]
    BadRenewDeadline {
        /// The requested renew deadline.
        renew_deadline: Duration,
        /// A third of the validity, or the validity minus `max_hold` if that is longer.
        longer_than: Duration,
        /// The validity: the TTL minus the drift allowance.
        most: Duration,
        /// The TTL of the election.
        ttl: Duration,
    },
    /// The retry delay of an [election](crate::ElectionBuilder::retry_delay) is zero or too long.
    #[error(
        "retry_delay {retry_delay:?} must be positive, and 1.2 times as long must be shorter than \
         renew_deadline {renew_deadline:?}: change retry_delay(), or increase renew_deadline() or ttl()"
    )]
    BadRetryDelay {
        /// The requested retry delay.
        retry_delay: Duration,
        /// The renew deadline, which is the validity by default.
        renew_deadline: Duration,
    },
    /// The period of a [scheduled job](crate::Redlock::once) is shorter than a second or longer than 30 days.
    #[error("invalid period {period:?}: pass a period from 1 second to 30 days to every()")]
    BadPeriod {
        /// Argument passed to [`every`](crate::Once::every).
        period: Duration,
    },
    /// The offset of a [scheduled job](crate::Redlock::once) is not shorter than its period.
    #[error("offset {offset:?} must be shorter than the period {period:?}: reduce offset()")]
    BadOffset {
        /// Argument passed to [`offset`](crate::ScheduledJob::offset).
        offset: Duration,
        /// The period of the job.
        period: Duration,
    },
    /// The `at_least` time of a [scheduled job](crate::Redlock::once) exceeds its period or `max_ttl`.
    #[error(
        "at_least({at_least:?}) exceeds {limit:?}, the shorter of the period and max_ttl: reduce \
         at_least(), or first increase max_ttl() on all clients of these nodes"
    )]
    AtLeastTooLong {
        /// Argument passed to [`at_least`](crate::ScheduledJob::at_least).
        at_least: Duration,
        /// The shorter one of the period and [`max_ttl`](crate::Builder::max_ttl).
        limit: Duration,
    },
    /// The name of a [scheduled job](crate::Redlock::once) is empty, or its braces form no hash tag.
    #[error(
        "the job \"{name}\" cannot have a counter: its key is empty, or its braces form no hash tag; remove \
         the braces, or start with a hash tag, such as {{user:7}}/report"
    )]
    BadJob {
        /// Name of the job, escaped, and truncated if it is long.
        name: String,
    },
    /// The resource's key cannot have [readers](crate::Redlock::rw_lock): it is empty, or its braces form no hash tag.
    #[error(
        "the resource \"{resource}\" cannot have readers: its key is empty, or its braces form no hash tag; \
         remove the braces, or start with a hash tag, such as {{user:7}}/catalog"
    )]
    NoReaders {
        /// Name of the resource, escaped, and truncated if it is long.
        resource: String,
    },
    /// The value to [adopt](crate::Redlock::adopt) is the mark of a lock that has readers. Readers cannot be adopted.
    #[error("readers cannot be adopted: wait until they have released the lock")]
    AdoptsReaders,
    /// The name of an environment variable has the prefix, but matches no setting. Returned by
    /// [`Config::from_env`](crate::Config::from_env) and [`Config::with_env`](crate::Config::with_env).
    #[error("unknown environment variable {name}: unset it, or use one of {known}")]
    UnknownVariable {
        /// Name of the variable.
        name: String,
        /// Names of all variables that match a setting.
        known: String,
    },
    /// A required environment variable is not set. Returned by [`Config::from_env`](crate::Config::from_env).
    #[error(
        "environment variable {name} is not set: set it to the URLs of the nodes, such as \
         redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3"
    )]
    MissingVariable {
        /// Name of the variable.
        name: String,
    },
    /// The value of an environment variable is invalid. Returned by [`Config::from_env`](crate::Config::from_env) and
    /// [`Config::with_env`](crate::Config::with_env).
    #[error("invalid value of environment variable {name}: {reason}")]
    BadVariable {
        /// Name of the variable.
        name: String,
        /// Description of the valid values, without the invalid value.
        reason: String,
    },
    /// The prefix is empty, so every environment variable would be read as a setting. Returned by
    /// [`Config::from_env`](crate::Config::from_env) and [`Config::with_env`](crate::Config::with_env).
    #[error("the prefix of environment variables is empty: use a prefix such as QUORLOCK")]
    EmptyPrefix,
    /// A [`Config`](crate::Config) has both `owner` and `metadata`. Both set the text that is stored with every lock,
    /// so only one of them may be set.
    #[error("owner and metadata are both set: unset one of them")]
    OwnerAndMetadata,
    /// The cool-down of [`release_after`](crate::Lease::release_after) exceeds `max_ttl`, on which the restart guard
    /// relies. The client limited the cool-down to `max_ttl`.
    #[error(
        "cool-down {cool_down:?} exceeds max_ttl {max_ttl:?} and was limited to it: use a shorter \
         cool-down, or first increase max_ttl() on all clients of these nodes"
    )]
    CoolDownExceedsMax {
        /// The requested cool-down.
        cool_down: Duration,
        /// Maximum TTL for all clients of the nodes; see [`max_ttl`](crate::Builder::max_ttl).
        max_ttl: Duration,
    },
    /// The margin of [`stop_before`](crate::Acquire::stop_before) leaves no time to work.
    #[error(
        "margin {margin:?} leaves no time to work: pass less than {limit:?} to stop_before(), or \
         increase ttl()"
    )]
    MarginTooLong {
        /// Argument passed to [`stop_before`](crate::Acquire::stop_before).
        margin: Duration,
        /// Upper limit: the margin must be shorter than this duration.
        limit: Duration,
    },
    /// A timeout is zero, so no operation could succeed.
    #[error("{setting} is zero: no operation could succeed; use a positive duration")]
    ZeroTimeout {
        /// Name of the setting: `node_timeout` or `connect_timeout`.
        setting: &'static str,
    },
}
