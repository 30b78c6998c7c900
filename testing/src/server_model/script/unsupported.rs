//! Replies of nodes without the feature `scripts`.

use crate::server_model::command_context::CommandContext;
use crate::server_model::config::Version;
use crate::server_model::reply::Reply;

/// The client treats the error as one of a server without scripts, so it can still connect.
const ERROR: &str =
    "ERR unknown command: scripts need the feature `scripts` of the crate quorlock-test";

pub(super) fn check(_: &Version, _digest: &str, _source: &[u8]) -> Result<(), String> {
    Err(ERROR.to_owned())
}

pub(super) fn run(
    _: &mut CommandContext<'_>,
    _script: (&str, &[u8]),
    _keys: &[Vec<u8>],
    _args: &[Vec<u8>],
) -> Reply {
    Reply::error(ERROR)
}

#[cfg(test)]
mod tests {
    use crate::Nodes;
    use quorlock::ReleaseError;

    #[tokio::test(start_paused = true)]
    async fn client_without_scripts_acquires_but_cannot_release() {
        let nodes = Nodes::start(5);
        let redlock = nodes.client().build().expect("valid settings");
        let lease = redlock.acquire("a").await.expect("SET is sufficient");
        let refused = redlock.try_acquire("a").await.expect_err("the lock is held");
        assert!(refused.is_contended(), "{refused}");
        let failed = lease.release().await.expect_err("a release is a script");
        assert!(matches!(failed, ReleaseError::NoQuorum { .. }));
        assert!(failed.to_string().contains("need the feature `scripts`"), "{failed}");
        assert_eq!(nodes.count("a"), 5, "the keys remain");
    }
}
