//! Which optional commands a node's set-ups omit.
//!
//! A server or proxy may never reply to a command that the client can do without. Replies are matched by their order, so
//! every set-up would end by the connect timeout. After [`STOPPED`] such set-ups in a row, the next ones send their
//! commands one by one. If two of them stop at the same command, later set-ups omit it.
//!
//! Slow, cut and unresponsive connections look different: their bytes still arrive, or no part of a pipeline is answered,
//! or the next set-up succeeds. They must not lead to an omission: without `CLIENT ID` no broken connection can be
//! killed, and without `INFO` a restart is assumed.

use super::set_up_parts::{Optional, Optionals};
use crate::protocol::Time;
use std::time::Duration;

/// Set-ups in a row that stop within a pipeline before commands are sent one by one. One alone can be a connection that
/// was cut at that moment.
const STOPPED: u32 = 2;

/// How long a command is omitted. After that, another server or proxy may be at the address. A wrong omission ends with
/// it, and a right one costs four connect timeouts again, only of a new connection.
const OMITTED_FOR: Duration = Duration::from_secs(10 * 60);

/// The record of one node, by the timers' clock.
#[derive(Debug, Default)]
pub(crate) struct Omissions {
    /// Set-ups in a row that stopped.
    stopped: u32,
    /// The command at which the last one-by-one set-up stopped. One stop alone can be a cut connection.
    suspect: Option<Optional>,
    omitted: Optionals,
    /// When `omitted` ends.
    until: Time,
}

/// How one set-up sends its commands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) omitted: Optionals,
    /// Of the record when the set-up began.
    stopped: u32,
}

/// The replies that a set-up lacked when the connect timeout ended it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Missing {
    /// None, or all of a pipeline, or bytes had arrived shortly before; or the set-up ended otherwise.
    #[default]
    Unknown,
    /// Some replies of a pipeline.
    Rest,
    /// The replies to this command, which had been sent alone.
    Of(Optional),
}

/// The exchange under way of a set-up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    missing: Missing,
    /// True if an exchange has ended since the last connect timeout.
    has_answered: bool,
    /// When it began or its last byte arrived.
    since: Time,
    /// Bytes that have arrived on the connection.
    received: u64,
}

impl Omissions {
    pub(crate) fn plan(&self, now: Time) -> Plan {
        let omitted = if now < self.until { self.omitted } else { Optionals::default() };
        Plan { omitted, stopped: self.stopped }
    }

    /// A set-up by `plan` has ended. It lacked the replies `missing`.
    pub(crate) fn handle_end(&mut self, plan: Plan, missing: Missing, now: Time) {
        // Another set-up that was under way at the same time shows the same fault, and may have been counted.
        let is_new = self.stopped == plan.stopped;
        match missing {
            Missing::Rest if !plan.is_one_by_one() => self.stopped += u32::from(is_new),
            Missing::Of(_) if !is_new => {}
            Missing::Of(optional) => {
                // The next set-up is one by one, too: other commands may have no reply either.
                self.stopped += 1;
                if self.suspect.replace(optional) == Some(optional) {
                    self.suspect = None;
                    self.omitted = self.plan(now).omitted.with(optional);
                    self.until = now.after(OMITTED_FOR);
                }
            }
            _ => (self.stopped, self.suspect) = (0, None),
        }
    }
}

impl Plan {
    /// True if the set-up waits for the reply to each command before it sends the next one.
    pub(crate) fn is_one_by_one(self) -> bool {
        self.stopped >= STOPPED
    }
}

impl Progress {
    /// An exchange begins; with the optional command that it consists of, if it is sent alone.
    pub(crate) fn handle_begin(&mut self, alone: Option<Optional>, now: Time) {
        self.missing = alone.map_or(Missing::Unknown, Missing::Of);
        self.since = now;
    }

    /// The connection has `received` this many bytes.
    pub(crate) fn handle_received(&mut self, received: u64, is_partly_answered: bool, now: Time) {
        if received != self.received {
            (self.received, self.since) = (received, now);
        }
        if is_partly_answered && self.missing == Missing::Unknown {
            self.missing = Missing::Rest;
        }
    }

    /// The exchange has ended.
    pub(crate) fn handle_answered(&mut self) {
        (self.missing, self.has_answered) = (Missing::Unknown, true);
    }

    /// True if a one-by-one set-up may take another connect timeout: it has many round trips, and the server still replies.
    pub(crate) fn may_go_on(&mut self, connect_timeout: Duration, now: Time) -> bool {
        let has_answered = std::mem::take(&mut self.has_answered);
        has_answered && self.missing(connect_timeout, now) == Missing::Unknown
    }

    /// The missing replies at the connect timeout, if no byte has arrived for half of it.
    pub(crate) fn missing(&self, connect_timeout: Duration, now: Time) -> Missing {
        let has_stopped = now.since(self.since) >= connect_timeout / 2;
        if has_stopped { self.missing } else { Missing::Unknown }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Optional::{ClientId, Info, Tracking};

    const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Time {
        Time::from_nanos(1 << 60).after(Duration::from_secs(seconds))
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Ends a set-up of `plan` by the connect timeout. Its last exchange is `command`, if that is sent alone; at each of
    /// these milliseconds a reply arrives. `None` is a required command.
    fn end(it: &mut Omissions, plan: Plan, command: Option<Optional>, replies: &[u64], now: u64) {
        let mut progress = Progress::default();
        let alone = command.filter(|_| plan.is_one_by_one());
        progress.handle_begin(alone, at(now));
        for (count, after) in (1..).zip(replies) {
            let has_more = !plan.is_one_by_one();
            progress.handle_received(count, has_more, at(now).after(ms(*after)));
        }
        // A poll without bytes, as other events of the task cause it.
        let is_partly_answered = !replies.is_empty() && !plan.is_one_by_one();
        let polled = at(now).after(ms(990));
        progress.handle_received(replies.len() as u64, is_partly_answered, polled);
        let now = at(now).after(CONNECT_TIMEOUT);
        it.handle_end(plan, progress.missing(CONNECT_TIMEOUT, now), now);
    }

    fn time_out(it: &mut Omissions, command: Option<Optional>, replies: &[u64], now: u64) {
        let plan = it.plan(at(now));
        end(it, plan, command, replies, now);
    }

    fn succeed(it: &mut Omissions, now: u64) {
        it.handle_end(it.plan(at(now)), Missing::Unknown, at(now));
    }

    fn is_one_by_one(it: &Omissions, now: u64) -> bool {
        it.plan(at(now)).is_one_by_one()
    }

    #[test]
    fn commands_without_reply_are_omitted_for_ten_minutes() {
        let mut it = Omissions::default();
        for now in [0, 10] {
            assert!(!is_one_by_one(&it, now));
            time_out(&mut it, Some(Info), &[1, 2], now);
        }
        for (now, command) in [(20, Info), (25, Info), (28, Tracking), (30, Tracking)] {
            assert!(is_one_by_one(&it, now));
            assert!(
                !it.plan(at(now)).omitted.contains(command),
                "one stop may be a cut connection"
            );
            time_out(&mut it, Some(command), &[], now);
        }
        assert!(is_one_by_one(&it, 40), "until a set-up succeeds");
        succeed(&mut it, 40);
        let both = Optionals::default().with(Info).with(Tracking);
        assert!(!both.contains(ClientId));
        for (now, omitted) in [(41, both), (630, both), (631, Optionals::default())] {
            assert_eq!(it.plan(at(now)).omitted, omitted);
            assert!(!is_one_by_one(&it, now));
        }
        (700..704).for_each(|now| time_out(&mut it, Some(ClientId), &[1], now));
        assert_eq!(it.plan(at(704)).omitted, Optionals::default().with(ClientId));
    }

    #[test]
    fn set_ups_that_stop_at_different_commands_omit_none() {
        let mut it = Omissions::default();
        (0..2).for_each(|now| time_out(&mut it, Some(Info), &[1], now));
        for now in (2..8).step_by(2) {
            time_out(&mut it, Some(Info), &[], now);
            time_out(&mut it, Some(ClientId), &[], now + 1);
        }
        time_out(&mut it, None, &[], 8);
        (9..11).for_each(|now| time_out(&mut it, Some(ClientId), &[1], now));
        time_out(&mut it, Some(ClientId), &[], 11);
        assert_eq!(it.plan(at(12)).omitted, Optionals::default());
    }

    #[test]
    fn slow_cut_and_unresponsive_connections_omit_nothing() {
        const SLOW: &[u64] = &[100, 300, 600];
        const CUT: &[u64] = &[1];
        const UNRESPONSIVE: &[u64] = &[];
        for pattern in [[SLOW; 4], [UNRESPONSIVE; 4], [CUT, SLOW, CUT, UNRESPONSIVE]] {
            let mut it = Omissions::default();
            for (now, replies) in (0..).zip(pattern.repeat(3)) {
                assert!(!is_one_by_one(&it, now), "{pattern:?}");
                time_out(&mut it, Some(ClientId), replies, now);
            }
        }
        let mut it = Omissions::default();
        for now in 0..4 {
            time_out(&mut it, Some(ClientId), CUT, now);
            succeed(&mut it, now + 1);
        }
        assert!(!is_one_by_one(&it, 9));
    }

    #[test]
    fn one_by_one_set_up_omits_only_an_optional_command_that_is_clearly_unanswered() {
        for (command, replies, is_omitted) in [
            (Some(ClientId), &[][..], true),
            (Some(ClientId), &[499], true),
            (Some(ClientId), &[600], false),
            (None, &[], false),
            (None, &[1], false),
        ] {
            let mut it = Omissions::default();
            (0..2).for_each(|now| time_out(&mut it, command, &[1], now));
            (2..4).for_each(|now| time_out(&mut it, command, replies, now));
            assert_eq!(it.plan(at(4)).omitted.contains(ClientId), is_omitted, "{replies:?}");
            assert_eq!(is_one_by_one(&it, 4), is_omitted, "otherwise it begins again");
        }
    }

    #[test]
    fn answered_exchange_lacks_no_reply() {
        let mut progress = Progress::default();
        progress.handle_begin(Some(Info), at(0));
        progress.handle_received(1, false, at(0));
        progress.handle_answered();
        assert_eq!(progress.missing(CONNECT_TIMEOUT, at(1)), Missing::Unknown);
    }

    #[test]
    fn one_by_one_set_up_goes_on_while_commands_are_answered() {
        let mut progress = Progress::default();
        let may_go_on = |progress: &mut Progress, now| progress.may_go_on(CONNECT_TIMEOUT, now);
        assert!(!may_go_on(&mut progress, at(1)), "no connection");
        progress.handle_begin(None, at(1));
        progress.handle_answered();
        progress.handle_begin(Some(Info), at(1).after(ms(600)));
        assert!(may_go_on(&mut progress, at(2)), "INFO was sent shortly before");
        assert!(!may_go_on(&mut progress, at(3)), "and was not answered since");
        assert_eq!(progress.missing(CONNECT_TIMEOUT, at(3)), Missing::Of(Info));
        progress.handle_answered();
        progress.handle_begin(Some(Tracking), at(3));
        assert!(!may_go_on(&mut progress, at(4)), "TRACKING has no reply");
    }

    #[test]
    fn simultaneous_set_ups_count_once() {
        let mut it = Omissions::default();
        let plan = it.plan(at(0));
        (0..3).for_each(|_| end(&mut it, plan, Some(Info), &[1], 0));
        assert!(!is_one_by_one(&it, 2));
        time_out(&mut it, Some(Info), &[1], 2);
        let plan = it.plan(at(3));
        (0..2).for_each(|_| end(&mut it, plan, Some(Info), &[], 3));
        assert_eq!(it.plan(at(4)).omitted, Optionals::default());
        let plan = it.plan(at(4));
        succeed(&mut it, 5);
        end(&mut it, plan, Some(Info), &[], 5);
        assert_eq!(it.plan(at(6)).omitted, Optionals::default(), "another set-up succeeded");
    }
}
