//! The setting for nodes that may have lost locks in a restart.

use crate::protocol::Policy;

/// The policy for nodes that were restarted and may have lost locks.
///
/// A client quarantines a node that may have restarted: the node's grants to acquires and adoptions
/// do not count towards the quorum. The node still receives every command, and its votes on
/// extensions and releases count. The quarantine ends when every lock that the node may have lost
/// has expired. Its length, called *the quarantine period* below, is
/// [`max_ttl`](crate::Builder::max_ttl) x (1 + 2 x [drift factor](crate::Builder::drift_factor)) +
/// 1 s on this client's clock. A client also quarantines a node whose keys were flushed
/// (`FLUSHALL`, `FLUSHDB`), once it finds that the node has lost a lock of this client.
///
/// Persistence settings of the server do not exempt a node from the quarantine. `appendfsync always`
/// does not prove that the node still has the same disk, or that the process behind its address is
/// not a promoted replica. If you can guarantee both, exempt the nodes with
/// [`trust_persistence`](crate::Builder::trust_persistence).
///
/// If a server reports no `run_id`, the client compares other fields of `INFO`. The client assumes
/// an unchanged server only if `master_replid` is unchanged and `uptime_in_seconds` shows that the
/// server was already running when the client last connected to it.
///
/// If `INFO` is not permitted or reports no uptime either, the client treats each reconnect as a
/// restart. The client then also assumes on the first connection that the server has just started.
/// To avoid this, permit `INFO` (`+info`). If a server's machine fails without closing its
/// connections, the client detects the failure within 5 s plus the node timeout.
///
/// A server's age is the uptime that `INFO` reports. This uptime depends on the node's wall clock.
///
/// If a deployment grows from one node to three, or if two of its three nodes are replaced, the majority of nodes
/// started recently. Clients then cannot acquire locks until a quarantine period has passed.
///
/// # Limits of detection
///
/// - **A failover behind one address.** A client that connects for the first time cannot detect the
///   failover, because a promoted replica does not report when it was promoted. Each address must
///   belong to one server and never move to another. [`check`](crate::Redlock::check) warns of
///   replicas.
/// - **A recent start of a majority of nodes, while the older nodes are unresponsive.** A new
///   client assumes that the deployment is new. Bring the older nodes back first, or use
///   [`Strict`](Self::Strict).
/// - **A power failure of all nodes.** Running clients wait for the quarantine period, but clients
///   that start later do not. After a power failure, wait for one quarantine period before you
///   start the nodes, or use [`Strict`](Self::Strict).
///
/// Therefore restart one node at a time, and wait for [`max_ttl`](crate::Builder::max_ttl) plus one
/// second before you restart the next node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RestartGuard {
    /// Does not quarantine nodes: the grants of restarted and flushed nodes count. Use `Off` for
    /// tests, and for nodes whose start is delayed by other means. Nodes with an unreliable
    /// [clock](crate::NodeFailure::Suspect) are still excluded.
    Off,
    /// Quarantines a node when this client detects that the node's server process has changed. Also
    /// quarantines a young node, unless the deployment is new. A node is young if its server
    /// started less than a quarantine period before this client first connected to it. The
    /// quarantine of a young node lasts for the rest of that period.
    ///
    /// The deployment is new if this client knows of no node that is, or was, older than the
    /// quarantine period. The client keeps this knowledge when a node stalls or crashes. A new
    /// deployment therefore grants locks immediately, even if some of its nodes are down, or start
    /// up to one [`max_ttl`](crate::Builder::max_ttl) later than others.
    ///
    /// To determine whether the deployment is new, the first attempts of a client wait while all
    /// known nodes are young. These attempts wait until the client has connected to each node or
    /// failed to connect to it, for at most the [connect timeout](crate::Builder::connect_timeout).
    #[default]
    Observed,
    /// Quarantines the same nodes as [`Observed`](Self::Observed), and also each young node in a
    /// new deployment. A new deployment therefore grants no locks until its nodes have been running
    /// for a quarantine period.
    Strict,
}

impl From<RestartGuard> for Policy {
    fn from(guard: RestartGuard) -> Self {
        match guard {
            RestartGuard::Off => Self::Off,
            RestartGuard::Observed => Self::Observed,
            RestartGuard::Strict => Self::Strict,
        }
    }
}
