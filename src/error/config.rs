//! Settings that cannot work.

use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// Settings that cannot work, alone or together.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No node was given.
    #[error("no node given: pass at least one address to nodes(), better three or five")]
    NoNodes,
    /// More nodes were given than can vote.
    #[error("{given} nodes given, at most {most} can vote: five are plenty")]
    TooManyNodes {
        /// How many were given.
        given: usize,
        /// How many there can be.
        most: usize,
    },
    /// The same server was given twice: its vote would count double.
    #[error("node {name} is given twice: each must be a server of its own")]
    SameNode {
        /// The address.
        name: String,
    },
    /// An address that is no Redis URL.
    #[error("node {position} has no good URL ({url}): {reason}")]
    BadUrl {
        /// Its place in the list, counted from 1.
        position: usize,
        /// Its scheme and host, or its length where it has none.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A parameter in a node's URL that quorlock does not know. To ignore it could lock in another database, or without
    /// a limit that was meant.
    #[error(
        "the URL of node {position} ({url}) has an unknown parameter ({parameter}): remove it; accepted are {accepted}"
    )]
    UnknownUrlParameter {
        /// The node's place in the list, counted from 1.
        position: usize,
        /// Scheme and host.
        url: String,
        /// The parameter's name, or its length where it does not look like a name.
        parameter: String,
        /// The names of the parameters that such a URL can have.
        accepted: String,
    },
    /// A `rediss://` address, but quorlock was built without TLS.
    #[error("node {url} wants TLS: build quorlock with the feature `tls-rustls`")]
    TlsNotEnabled {
        /// The address, without user and password.
        url: String,
    },
    /// A `redis::Client` with certificates of its own, which cannot be read.
    #[error(
        "the certificates of the redis::Client for node {name} cannot be read: give the address to \
         nodes() as a rediss:// URL, and the certificates to tls()"
    )]
    OpaqueTls {
        /// The address.
        name: String,
    },
    /// A file for TLS that cannot be used.
    #[error("{setting} {} cannot be used: {reason}", path.display())]
    BadTlsFile {
        /// The setting's name: `tls_ca_cert_file`, `tls_cert_file` or `tls_key_file`.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error, or what the file lacks.
        reason: String,
    },
    /// A certificate for TLS without its key, or the reverse.
    #[error("{missing} is not set: tls_cert_file and tls_key_file are needed together")]
    IncompleteTlsFiles {
        /// The setting's name.
        missing: &'static str,
    },
    /// A ttl below one millisecond, or above a hundred years.
    #[error("a {setting} of {ttl:?} cannot be told to Redis: it must be from 1 ms to 100 years")]
    BadTtl {
        /// The setting's name: `ttl` (also that of an extension), `max_ttl` or `token_ttl`.
        setting: &'static str,
        /// What was asked for.
        ttl: Duration,
    },
    /// A ttl or an extension that is longer than what the restart guard waits for.
    #[error(
        "a ttl of {ttl:?} is longer than the max_ttl of {max_ttl:?}: use a shorter one, or raise \
         max_ttl() on all clients of these nodes, and then use it"
    )]
    TtlExceedsMax {
        /// What was asked for.
        ttl: Duration,
        /// The longest that any client of the nodes may ask for; see
        /// [`max_ttl`](crate::Builder::max_ttl).
        max_ttl: Duration,
    },
    /// More is to be [ensured](crate::LeaseRef::ensure) than the longest ttl gives.
    #[error(
        "ensure({validity:?}) asks for more than the max_ttl of {max_ttl:?} gives: ensure less, in \
         shorter steps, or raise max_ttl() on all clients of these nodes, and then use it"
    )]
    EnsureExceedsMax {
        /// What was asked for.
        validity: Duration,
        /// The longest ttl that any client of the nodes may ask for; see
        /// [`max_ttl`](crate::Builder::max_ttl). The allowance for drift is a part of it.
        max_ttl: Duration,
    },
    /// A lock is to be kept from others for longer than the nodes keep it.
    #[error(
        "at_least({at_least:?}) is longer than the ttl of {ttl:?}: use a longer ttl, so that the lock \
         stands for that time also if its holder dies"
    )]
    AtLeastExceedsTtl {
        /// What was asked for.
        at_least: Duration,
        /// The ttl of the acquire.
        ttl: Duration,
    },
    /// A fencing counter could expire before the lease that uses its token.
    #[error(
        "a token_ttl of {token_ttl:?} is shorter than the max_ttl of {max_ttl:?}: tokens must be \
         remembered for as long as the longest lease, better for a day"
    )]
    TokenTtlBelowMax {
        /// What was asked for.
        token_ttl: Duration,
        /// The longest ttl of a lease; see [`max_ttl`](crate::Builder::max_ttl).
        max_ttl: Duration,
    },
    /// A drift factor that is no share of the ttl.
    #[error("a drift factor of {factor} makes no sense: it must be at least 0 and below 1")]
    BadDriftFactor {
        /// What was asked for.
        factor: f64,
    },
    /// The allowance for drift leaves nothing of the ttl.
    #[error(
        "a ttl of {ttl:?} is used up by the drift allowance of {drift:?}: use a longer ttl(), or a \
         smaller drift_factor() or drift_constant()"
    )]
    DriftExceedsTtl {
        /// The ttl.
        ttl: Duration,
        /// The allowance for it.
        drift: Duration,
    },
    /// Waiting for a slow node could use up the whole validity.
    #[error(
        "a node timeout of {node_timeout:?} can outlast the validity of {validity:?} that a ttl of \
         {ttl:?} gives: use a shorter node_timeout() or a longer ttl()"
    )]
    NodeTimeoutExceedsValidity {
        /// The node timeout.
        node_timeout: Duration,
        /// The ttl.
        ttl: Duration,
        /// The ttl less the allowance for drift.
        validity: Duration,
    },
    /// A lease that is kept up for so short a time could end while it is acquired.
    #[error(
        "a max_hold of {max_hold:?} is not longer than the node timeout of {node_timeout:?}: give \
         auto_extend() more, or use auto_extend_forever()"
    )]
    MaxHoldTooShort {
        /// What was given to [`auto_extend`](crate::Acquire::auto_extend).
        max_hold: Duration,
        /// The node timeout.
        node_timeout: Duration,
    },
    /// Nothing was given to lock.
    #[error("no resource given: pass at least one to acquire_all()")]
    NoResources,
    /// More resources were given than one lease can hold: a node would be busy with them for too
    /// long.
    #[error("{given} resources given, at most {most} can be locked together")]
    TooManyResources {
        /// How many were given.
        given: usize,
        /// How many there can be.
        most: usize,
    },
    /// [`adopt`](crate::Redlock::adopt): the value is that of a lease of several resources. To adopt one
    /// of them would break it.
    #[error(
        "this is the value of a lease of {resources} resources, which cannot be handed over: let its \
         holder release it, and acquire them with acquire_all()"
    )]
    AdoptsSet {
        /// How many resources the lease has, as its value says.
        resources: usize,
    },
    /// Metadata that is too long to be sent with every command.
    #[error("metadata of {length} bytes given, at most {most} are taken")]
    LongMetadata {
        /// Its length in bytes.
        length: usize,
        /// How long it can be.
        most: usize,
    },
    /// A resource whose key is longer than every server and proxy reads: some close the connection instead.
    #[error(
        "the key of the resource \"{resource}\" has {length} bytes with its prefix, at most {most} are \
         allowed: use a shorter name"
    )]
    LongResource {
        /// The resource; escaped, and cut if it is long.
        resource: String,
        /// The length of its key in bytes, prefix included.
        length: usize,
        /// The longest key in bytes.
        most: usize,
    },
    /// Resources whose keys are together longer than one command may be.
    #[error(
        "the keys of {resources} resources have {length} bytes together, at most {most} are allowed: \
         use shorter names, or lock fewer resources together"
    )]
    LongResources {
        /// The number of resources.
        resources: usize,
        /// The sum of the lengths of their keys in bytes, prefixes included.
        length: usize,
        /// The largest sum in bytes.
        most: usize,
    },
    /// [`adopt`](crate::Redlock::adopt): no lease has a value of this length.
    #[error(
        "a value of {length} bytes cannot be adopted: values of leases have at most {most} bytes"
    )]
    LongValue {
        /// Its length in bytes.
        length: usize,
        /// The longest value in bytes.
        most: usize,
    },
    /// A resource whose key could be one of the library's own, such as that of a fencing counter.
    #[error(
        "the resource \"{resource}\" cannot be locked: no key may contain \"#quorlock:\", which marks \
         the keys of fencing counters and the like; use another name"
    )]
    ReservedResource {
        /// The resource; escaped, and cut if it is long.
        resource: String,
    },
    /// A prefix with which every key could be one of the library's own.
    #[error(
        "the key_prefix \"{prefix}\" cannot be used: no key may contain \"#quorlock:\", which marks \
         the keys of fencing counters and the like; use another prefix"
    )]
    ReservedPrefix {
        /// The prefix; escaped, and cut if it is long.
        prefix: String,
    },
    /// A fencing token was asked for, and a counter for it cannot be where the resource is: the slot
    /// of a node in cluster mode.
    #[error(
        "no fencing token for the resource \"{resource}\": its key is empty, or has braces that are \
         no hash tag, so that its counter cannot be in its slot; write it without braces, or begin \
         with some that enclose something, such as {{user:7}}/inbox"
    )]
    NoCounter {
        /// The resource; escaped, and cut if it is long.
        resource: String,
    },
    /// [`Config::from_env`](crate::Config::from_env): a variable with the prefix that is no setting.
    #[error("the environment variable {name} is no setting: unset it, or write one of {known}")]
    UnknownVariable {
        /// The variable.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// [`Config::from_env`](crate::Config::from_env): a variable that has to be there.
    #[error(
        "the environment variable {name} is not set: give it the URLs of the nodes, such as \
         redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3"
    )]
    MissingVariable {
        /// The variable.
        name: String,
    },
    /// [`Config::from_env`](crate::Config::from_env): a variable that does not hold what it should.
    #[error("the environment variable {name} cannot be used: {reason}")]
    BadVariable {
        /// The variable.
        name: String,
        /// What it must be. What it holds is not told.
        reason: String,
    },
    /// [`Config::from_env`](crate::Config::from_env) without a prefix: every variable would be a setting.
    #[error("no prefix given for variables of the environment: use one, such as QUORLOCK")]
    EmptyPrefix,
    /// A [`Config`](crate::Config) with two things to tell who holds a lock.
    #[error(
        "owner and metadata are both set, and each is what a lock tells of its holder: unset one"
    )]
    OwnerAndMetadata,
    /// The blocking client needs a thread, and the system gives none.
    #[error("no thread for the connections of a blocking client: {reason}")]
    NoThread {
        /// What the system says.
        reason: String,
    },
    /// A [cool-down](crate::Lease::release_after) that is longer than what the restart guard waits for.
    /// The lock is left standing for the longest time that is allowed.
    #[error(
        "a cool-down of {cool_down:?} is longer than the max_ttl of {max_ttl:?}, for which the lock \
         stands now at the most: use a shorter one, or raise max_ttl() on all clients of these nodes, \
         and then use it"
    )]
    CoolDownExceedsMax {
        /// What was asked for.
        cool_down: Duration,
        /// The longest that any client of the nodes may ask for; see
        /// [`max_ttl`](crate::Builder::max_ttl).
        max_ttl: Duration,
    },
    /// Work would be told to stop before it could begin, or before each renewal of its lease.
    #[error(
        "a margin of {margin:?} leaves no time to work: give stop_before() less than {limit:?}, or use \
         a longer ttl()"
    )]
    MarginTooLong {
        /// What was given to [`stop_before`](crate::Acquire::stop_before).
        margin: Duration,
        /// What it has to be less than.
        limit: Duration,
    },
    /// A timeout of zero, in which nothing can ever succeed.
    #[error("{setting} is zero: nothing could ever succeed in it")]
    ZeroTimeout {
        /// The setting's name.
        setting: &'static str,
    },
}
