//! Ensures that a release is the last command of its attempt that runs on a node, even if a broken connection delivers
//! commands late (I8).
//!
//! The problem:
//!
//! 1. The client writes a `SET` to a connection, which breaks before the reply. The bytes are delayed in the network.
//! 2. The client writes the release over a new connection, and the node answers that no key exists.
//! 3. The delayed bytes arrive and set a key. No further release is sent.
//!
//! The broken connection must therefore be ended before a release is written: the client asks the server to kill the
//! connection. This is not needed if the server process has ended. If neither is certain, the broken connection may
//! deliver commands until the [stale window](STALE_WINDOW) ends. A release that was written before that time is
//! repeated.
//!
//! Report each connection that breaks with unanswered commands with [`handle_broken`](StaleWindow::handle_broken). On a
//! new connection, [`broken`](StaleWindow::broken) and [`Broken::to_kill`] return the connections to kill. Report the
//! result with [`handle_killed`](StaleWindow::handle_killed). Do not write a pending command of a broken connection
//! until [`broken`](StaleWindow::broken) is empty. When a release is answered, [`may_undo`](StaleWindow::may_undo)
//! returns true if the release must be repeated.

use super::validity::Time;
use std::time::Duration;

/// How long a broken connection can still deliver bytes to a live server. On Linux, this is the user timeout of the
/// client's sockets (`TCP_USER_TIMEOUT`, RFC 5482). Other systems use their own timeout.
pub(crate) const STALE_WINDOW: Duration = Duration::from_secs(10);

/// A connection that broke with unanswered commands, which may still run. `R` identifies the runs of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken<R> {
    /// The run of the server to which the connection was made, if known.
    pub(crate) run: Option<R>,
    /// The client ID of the connection on that server, if known.
    pub(crate) client_id: Option<i64>,
}

impl<R: PartialEq> Broken<R> {
    /// Returns the client ID that the server must kill, if a new connection leads to the server run `run`. Returns
    /// `None` if the broken connection belonged to another run, or if its run or its client ID is unknown.
    pub(crate) fn to_kill(&self, run: Option<&R>) -> Option<i64> {
        let is_same = self.run.is_some() && self.run.as_ref() == run;
        self.client_id.filter(|_| is_same)
    }

    /// Returns true if the connection's server run and client ID are known. If so, either of two events proves that the
    /// connection delivers no more commands: a successful kill of the connection, or the end of that run.
    fn is_identified(&self) -> bool {
        self.run.is_some() && self.client_id.is_some()
    }
}

#[derive(Debug)]
pub(crate) struct StaleWindow<R> {
    window: Duration,
    broken: Vec<Broken<R>>,
    until: Option<Time>,
}

impl<R: PartialEq> StaleWindow<R> {
    /// Creates a window without broken connections. A broken connection can deliver commands for at most `window`.
    pub(crate) fn new(window: Duration) -> Self {
        Self { window, broken: Vec::new(), until: None }
    }

    pub(crate) fn handle_broken(&mut self, broken: Broken<R>) {
        self.broken.push(broken);
    }

    pub(crate) fn broken(&self) -> &[Broken<R>] {
        &self.broken
    }

    /// Records an attempt to kill the connections in `handled` over a new connection to `run`. `are_killed` is true if
    /// the server has killed every connection for which [`Broken::to_kill`] returned a client ID. If any connection in
    /// `handled` may still deliver commands, the stale window restarts at `now`.
    pub(crate) fn handle_killed(
        &mut self,
        handled: &[Broken<R>],
        run: Option<&R>,
        are_killed: bool,
        now: Time,
    ) {
        let are_known = run.is_some() && handled.iter().all(Broken::is_identified);
        if !(are_killed && are_known) {
            self.until = self.until.max(Some(now.after(self.window)));
        }
        self.broken.retain(|broken| !handled.contains(broken));
    }

    /// Returns true if a broken connection may still deliver a command after the release that was written at `written`.
    /// The release must then be repeated. The time of its reply does not matter, as this sequence shows:
    ///
    /// 1. A release is written and runs, but its reply is slow.
    /// 2. A broken connection delivers its `SET`.
    /// 3. The window ends.
    /// 4. The reply to the release arrives.
    pub(crate) fn may_undo(&self, written: Time) -> bool {
        self.until.is_some_and(|until| written < until)
    }
}

impl<R: PartialEq> Default for StaleWindow<R> {
    fn default() -> Self {
        Self::new(STALE_WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(secs: u64) -> Time {
        Time::default().after(Duration::from_secs(secs))
    }

    fn broken(run: Option<u8>, client_id: Option<i64>) -> Broken<u8> {
        Broken { run, client_id }
    }

    fn window() -> StaleWindow<u8> {
        StaleWindow::new(STALE_WINDOW)
    }

    #[test]
    fn only_connections_to_the_same_process_are_killed() {
        assert_eq!(broken(Some(1), Some(7)).to_kill(Some(&1)), Some(7));
        assert_eq!(broken(Some(1), Some(7)).to_kill(Some(&2)), None, "it ended with its process");
        assert_eq!(broken(None, Some(7)).to_kill(None), None, "its process is unknown");
        assert_eq!(broken(Some(1), None).to_kill(Some(&1)), None);
    }

    #[test]
    fn release_written_within_the_window_is_repeated() {
        for (old, run, are_killed, is_sure) in [
            (broken(Some(1), Some(7)), Some(1), true, true),
            (broken(Some(1), Some(7)), Some(2), true, true),
            (broken(Some(1), Some(7)), Some(1), false, false),
            (broken(Some(1), Some(7)), None, true, false),
            (broken(Some(1), None), Some(1), true, false),
            (broken(None, Some(7)), Some(1), true, false),
        ] {
            let mut it = window();
            it.handle_broken(old.clone());
            assert_eq!(it.broken(), std::slice::from_ref(&old));
            assert!(!it.may_undo(at(0)), "no release is written before it is handled");
            it.handle_killed(&[old], run.as_ref(), are_killed, at(5));
            assert!(it.broken().is_empty());
            assert_eq!(it.may_undo(at(14)), !is_sure, "{run:?} {are_killed}");
            assert!(!it.may_undo(at(15)));
        }
    }

    #[test]
    fn connection_that_breaks_during_kill_is_kept() {
        let (one, other) = (broken(Some(1), Some(7)), broken(Some(1), Some(8)));
        let mut it = window();
        it.handle_broken(one.clone());
        let handled = it.broken().to_vec();
        it.handle_broken(other.clone());
        it.handle_killed(&handled, Some(&1), true, at(1));
        assert_eq!(it.broken(), [other]);
        assert!(!it.may_undo(at(1)));
    }

    #[derive(Clone, Debug)]
    enum Operation {
        Break { knows_run: bool, knows_id: bool },
        Restart,
        Kill { knows_run: bool, obeys: bool, late: usize },
    }

    fn operations() -> impl Strategy<Value = Vec<(u64, Operation)>> {
        let coin = any::<bool>;
        let operation = prop_oneof![
            3 => (coin(), coin()).prop_map(|(knows_run, knows_id)| Operation::Break { knows_run, knows_id }),
            1 => Just(Operation::Restart),
            3 => (coin(), coin(), 0..3_usize)
                .prop_map(|(knows_run, obeys, late)| Operation::Kill { knows_run, obeys, late }),
        ];
        proptest::collection::vec((0..6_u64, operation), 1..40)
    }

    proptest! {
        /// Compares with a model of the broken connections that are still open. Checks that, while one of them is open,
        /// a release must wait or be repeated.
        #[test]
        fn releases_before_late_deliveries_are_repeated(operations in operations()) {
            let mut it = window();
            let (mut now, mut run, mut last_id) = (0, 0, 0);
            // Client ID, the run to which the socket was connected, and the time at which the connection broke.
            let mut open: Vec<(i64, u8, u64)> = Vec::new();
            for (pause, operation) in operations {
                now += pause;
                match operation {
                    Operation::Break { knows_run, knows_id } => {
                        last_id += 1;
                        open.push((last_id, run, now));
                        it.handle_broken(broken(knows_run.then_some(run), knows_id.then_some(last_id)));
                    }
                    Operation::Restart => {
                        run += 1;
                        open.clear();
                    }
                    Operation::Kill { knows_run, obeys, late } => {
                        let handled = it.broken()[..it.broken().len().saturating_sub(late)].to_vec();
                        let here = knows_run.then_some(run);
                        let ids: Vec<_> =
                            handled.iter().filter_map(|one| one.to_kill(here.as_ref())).collect();
                        if obeys {
                            open.retain(|(id, ..)| !ids.contains(id));
                        }
                        let are_killed = obeys || ids.is_empty();
                        it.handle_killed(&handled, here.as_ref(), are_killed, at(now));
                    }
                }
                // After the stale window the network delivers no more commands.
                open.retain(|(.., broke)| now < broke + STALE_WINDOW.as_secs());
                let is_repeated = !it.broken().is_empty() || it.may_undo(at(now));
                prop_assert!(open.is_empty() || is_repeated, "{open:?}");
            }
            prop_assert!(!it.may_undo(at(now + 11)), "the window ends");
        }
    }
}
