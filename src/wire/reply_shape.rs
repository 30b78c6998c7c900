//! The layout of the replies to one command, which may consist of several requests.

use super::answer::{Answer, Conflict, RemainingTtl};
use super::capabilities::NativeCommand;
use super::reply::{RequestKind, answer, is_noscript};
use super::requests::Requests;
use super::script::Form;
use super::unknown_command::is_unknown_command;
use super::value::{MAX_VALUE, Value as LockValue};
use redis::Value;
use std::num::NonZeroU16;

/// The beginning of the error that Redis returns for a `DELEX` of a key that does not hold a string.
const NO_STRING: &str = "Key should be of string type";

/// The layout of the replies to one command: their number, and the positions of those that matter. The client creates
/// the shape when it writes the command, and parses the replies with it.
///
/// The type is small because every command in flight has a shape. A command with the maximum of 1,000 keys has 2,001
/// replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyShape {
    pub(super) request: RequestKind,
    pub(super) len: u16,
    /// Position of the reply that determines the vote. 0 for a native delete, where all replies determine the vote.
    pub(super) verdict: u16,
    /// Position of the conflicting key's TTL, if the verdict does not contain the TTL. The position is never 0, because
    /// the TTL follows the verdict.
    pub(super) ttl: Option<NonZeroU16>,
    /// Position of the conflicting key's value. The position is never 0, because the value follows the verdict.
    pub(super) holder: Option<NonZeroU16>,
    /// Position of the reply to the last `CLIENT CACHING YES`.
    pub(super) watch: Option<u16>,
}

impl ReplyShape {
    pub(crate) fn len(&self) -> usize {
        self.len.into()
    }

    /// Parses the replies to the command. `value` is this client's lock value, whose secret digits are replaced in
    /// error texts.
    pub(crate) fn read(&self, replies: &[Value], value: &LockValue) -> Answer {
        let Some(verdict) = self.verdict(replies) else {
            return Answer::unexpected("no reply");
        };
        match answer(self.request, verdict, value) {
            Answer::Denied(conflict) => Answer::Denied(self.with_details(conflict, replies)),
            Answer::Granted(_) if !self.is_in_sync(replies) => {
                Answer::unexpected("replies out of sync")
            }
            answer => answer,
        }
    }

    /// Returns the reply that determines the vote, or `None` if replies are missing. For a native delete, this is the
    /// first reply that does not report a deletion. If every reply reports a deletion, it is the first reply.
    fn verdict<'a>(&self, replies: &'a [Value]) -> Option<&'a Value> {
        if self.request != RequestKind::NativeDelete {
            return replies.get(usize::from(self.verdict));
        }
        let own = replies.get(..self.len())?;
        own.iter().find(|reply| **reply != Value::Int(1)).or_else(|| own.first())
    }

    /// Returns false if the replies show that a reply is missing. The reply to `CLIENT CACHING YES` is `OK` or an
    /// error. Any other reply at its position means that the replies have shifted. The `OK` of `CLIENT CACHING YES` may
    /// then be at the position of the reply to `SET`.
    fn is_in_sync(&self, replies: &[Value]) -> bool {
        let watch = self.watch.and_then(|place| replies.get(usize::from(place)));
        watch.is_none_or(|reply| matches!(reply, Value::Okay | Value::ServerError(_)))
    }

    fn with_details(&self, mut conflict: Conflict, replies: &[Value]) -> Conflict {
        let reply = |place: Option<NonZeroU16>| replies.get(usize::from(place?.get()));
        if let Some(Value::Int(pttl)) = reply(self.ttl) {
            conflict.remaining = RemainingTtl::of(*pttl);
        }
        if let Some(Value::BulkString(value)) = reply(self.holder)
            // The value is empty if the key has expired, and cut off if it is longer than any lock's value.
            && (1..=MAX_VALUE).contains(&value.len())
        {
            conflict.value = Some(LockValue::of(value));
        }
        let watch = self.watch.and_then(|place| replies.get(usize::from(place)));
        conflict.is_watched = watch == Some(&Value::Okay);
        conflict
    }

    /// Returns the form in which the command must be resent, or `None` if the replies are final. A native delete of
    /// several keys may already have deleted some of them.
    pub(crate) fn other_form(&self, replies: &[Value]) -> Option<Form> {
        use RequestKind::{NativeAcquire, NativeDelete};
        let verdict = self.verdict(replies)?;
        match (self.request, verdict) {
            // For an acquire, 0 means that a key exists. For a delete, 0 means that the key is missing or holds another
            // value. Only the script reports the details.
            (NativeAcquire | NativeDelete, Value::Int(0)) => Some(Form::Hash),
            (NativeAcquire | NativeDelete, Value::ServerError(error)) => {
                let is_other = matches!(error.code(), "NOPERM" | "WRONGTYPE");
                let is_unknown = is_unknown_command(error.code(), error.details());
                (is_other || is_unknown).then_some(Form::Hash)
            }
            _ => is_noscript(verdict).then_some(Form::Source),
        }
    }

    /// Returns the native command of this request if the server does not support or permit it. Returns `None`
    /// otherwise.
    pub(crate) fn refused_native(&self, replies: &[Value]) -> Option<NativeCommand> {
        let command = match self.request {
            RequestKind::NativeAcquire => NativeCommand::SetAll,
            RequestKind::NativeDelete => NativeCommand::Delete,
            _ => return None,
        };
        let is_refused = |reply: &Value| {
            let Value::ServerError(error) = reply else { return false };
            // For a key of another type, `DELEX` of Redis returns no specific error code, whereas Valkey returns
            // `WRONGTYPE`.
            let is_kind = error.details().is_some_and(|why| why.starts_with(NO_STRING));
            let is_unknown = is_unknown_command(error.code(), error.details());
            error.code() == "NOPERM" || is_unknown && !is_kind
        };
        self.verdict(replies).is_some_and(is_refused).then_some(command)
    }
}

/// Appends the requests of one command, and records the layout of their replies.
pub(super) struct Writer<'a> {
    pub(super) requests: &'a mut Requests,
    /// Number of requests before this command.
    before: usize,
    shape: ReplyShape,
}

impl<'a> Writer<'a> {
    pub(super) fn new(request: RequestKind, requests: &'a mut Requests) -> Self {
        let before = requests.len();
        let shape =
            ReplyShape { request, len: 0, verdict: 0, ttl: None, holder: None, watch: None };
        Self { requests, before, shape }
    }

    /// Returns the shape of a script's reply, which determines the vote.
    pub(super) fn shape_of_script(mut self) -> ReplyShape {
        self.record_verdict();
        self.shape()
    }

    /// Records the kind of the request, if the encoding of the command determines it.
    pub(super) fn record_kind(&mut self, request: RequestKind) {
        self.shape.request = request;
    }

    /// Records that the reply to the last request determines the vote.
    pub(super) fn record_verdict(&mut self) {
        self.shape.verdict = self.last();
    }

    /// Records that the reply to the last request contains the TTL of the existing key.
    pub(super) fn record_ttl(&mut self) {
        self.shape.ttl = NonZeroU16::new(self.last());
    }

    /// Records that the reply to the last request contains the value of the existing key, which identifies the holder.
    pub(super) fn record_holder(&mut self) {
        self.shape.holder = NonZeroU16::new(self.last());
    }

    pub(super) fn record_watch(&mut self) {
        self.shape.watch = Some(self.last());
    }

    pub(super) fn shape(self) -> ReplyShape {
        ReplyShape { len: self.added(), ..self.shape }
    }

    fn last(&self) -> u16 {
        self.added().saturating_sub(1)
    }

    fn added(&self) -> u16 {
        u16::try_from(self.requests.len() - self.before).unwrap_or(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Vote;
    use std::time::Duration;

    const NIL: &str = "$-1\r\n";
    const OK: &str = "+OK\r\n";
    const TTL: &str = ":70\r\n";
    const VALUE: &str = "$2\r\nhi\r\n";

    fn parsed(wire: &[&str]) -> Vec<Value> {
        let parse = |wire: &&str| redis::parse_redis_value(wire.as_bytes()).expect("a reply");
        wire.iter().map(parse).collect()
    }

    /// Creates the shape of an acquire whose first reply determines the vote. `ttl` and `holder` are positions, or 0
    /// for none.
    fn acquire(len: u16, ttl: u16, holder: u16) -> ReplyShape {
        let (ttl, holder) = (NonZeroU16::new(ttl), NonZeroU16::new(holder));
        ReplyShape { request: RequestKind::Acquire, len, verdict: 0, ttl, holder, watch: None }
    }

    fn conflict(shape: ReplyShape, wire: &[&str]) -> Conflict {
        match shape.read(&parsed(wire), &LockValue::of(b"v")) {
            Answer::Denied(conflict) => conflict,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pttl_reply_sets_the_remaining_ttl() {
        let remaining = |shape, wire: &[&str]| conflict(shape, wire).remaining;
        let (plain, watched) = (acquire(2, 1, 0), acquire(3, 2, 0));
        let ms = |ms| Some(RemainingTtl::Expires(Duration::from_millis(ms)));
        assert_eq!(remaining(acquire(1, 0, 0), &[NIL]), None, "not requested");
        assert_eq!(remaining(plain, &[NIL, TTL]), ms(70));
        assert_eq!(remaining(watched, &[NIL, OK, ":-2\r\n"]), ms(0), "missing key");
        assert_eq!(remaining(watched, &[NIL, OK, ":-1\r\n"]), Some(RemainingTtl::NoExpiry));
        assert_eq!(remaining(watched, &[NIL, "-ERR no\r\n", "-ERR no\r\n"]), None);
        assert_eq!(remaining(watched, &[NIL, TTL, "-ERR no\r\n"]), None, "not the TTL's reply");
    }

    #[test]
    fn conflict_has_value_and_ttl() {
        let (plain, watched) = (acquire(3, 1, 2), acquire(4, 2, 3));
        let remaining = Some(RemainingTtl::Expires(Duration::from_millis(70)));
        let unknown = Conflict { remaining, ..Conflict::default() };
        let held = Conflict { value: Some(LockValue::of(b"hi")), ..unknown.clone() };
        assert_eq!(conflict(plain, &[NIL, TTL, VALUE]), held);
        assert_eq!(conflict(watched, &[NIL, OK, TTL, VALUE]), held);
        assert_eq!(conflict(plain, &[NIL, TTL, "-WRONGTYPE no\r\n"]), unknown);
        let ours = plain.read(&parsed(&[OK, TTL, VALUE]), &LockValue::of(b"v"));
        assert_eq!(ours.vote(), Vote::Granted, "the existing value is this client's");
    }

    #[test]
    fn key_is_watched_if_client_caching_succeeds() {
        let shape = ReplyShape { watch: Some(1), ..acquire(3, 2, 0) };
        let is_watched = |wire: &[&str]| conflict(shape, wire).is_watched;
        assert!(is_watched(&[NIL, OK, TTL]));
        assert!(!is_watched(&[NIL, "-NOPERM no\r\n", TTL]));
        assert!(!conflict(acquire(3, 2, 0), &[NIL, OK, TTL]).is_watched, "not requested");
    }

    #[test]
    fn reply_to_client_caching_is_no_grant() {
        let shape = ReplyShape { watch: Some(1), ..acquire(3, 2, 0) };
        let vote = |wire: &[&str]| shape.read(&parsed(wire), &LockValue::of(b"v")).vote();
        assert_eq!(vote(&[OK, OK, TTL]), Vote::Granted);
        assert_eq!(vote(&[OK, "-NOPERM no\r\n", TTL]), Vote::Granted);
        assert_eq!(vote(&[OK, TTL, "-BUSY no\r\n"]), Vote::Failed, "the reply to SET is omitted");
    }

    #[test]
    fn only_the_verdict_detects_noscript() {
        let shape = ReplyShape { verdict: 2, ..acquire(3, 0, 0) };
        let unknown = shape.other_form(&parsed(&[OK, TTL, "-NOSCRIPT no\r\n"]));
        assert_eq!(unknown, Some(Form::Source));
        assert_eq!(shape.other_form(&parsed(&["-NOSCRIPT no\r\n", TTL, NIL])), None);
        assert_eq!(shape.other_form(&[]), None);
        assert_eq!(shape.read(&[], &LockValue::of(b"v")), Answer::unexpected("no reply"));
    }

    #[test]
    fn native_delete_without_effect_is_followed_by_the_script() {
        let native = ReplyShape { request: RequestKind::NativeDelete, ..acquire(1, 0, 0) };
        for (wire, is_repeated, is_refused) in [
            (":1\r\n", false, false),
            (":0\r\n", true, false),
            ("-ERR unknown command 'DELIFEQ'\r\n", true, true),
            ("-NOPERM no\r\n", true, true),
            ("-WRONGTYPE no\r\n", true, false),
            ("-ERR Key should be of string type if conditions are specified\r\n", true, false),
            ("-BUSY x\r\n", false, false),
        ] {
            let replies = parsed(&[wire]);
            assert_eq!(native.other_form(&replies), is_repeated.then_some(Form::Hash), "{wire}");
            let refused = is_refused.then_some(NativeCommand::Delete);
            assert_eq!(native.refused_native(&replies), refused, "{wire}");
        }
    }

    #[test]
    fn native_release_of_a_set_is_granted_if_all_keys_were_deleted() {
        let native = ReplyShape { request: RequestKind::NativeDelete, ..acquire(3, 0, 0) };
        let (one, zero, busy) = (":1\r\n", ":0\r\n", "-BUSY x\r\n");
        for (wire, vote, is_repeated) in [
            ([one, one, one], Vote::Granted, false),
            ([zero, one, one], Vote::Failed, true),
            ([one, one, zero], Vote::Failed, true),
            ([one, "-WRONGTYPE no\r\n", one], Vote::Denied, true),
            ([one, "-NOPERM no\r\n", one], Vote::Failed, true),
            ([one, busy, zero], Vote::Failed, false),
            ([one, one, busy], Vote::Failed, false),
        ] {
            let replies = parsed(&wire);
            assert_eq!(native.read(&replies, &LockValue::of(b"v")).vote(), vote, "{wire:?}");
            assert_eq!(native.other_form(&replies), is_repeated.then_some(Form::Hash), "{wire:?}");
        }
        let cut = native.read(&parsed(&[one, one]), &LockValue::of(b"v"));
        assert_eq!(cut, Answer::unexpected("no reply"));
    }

    #[test]
    fn native_acquire_of_several_keys_is_refused_by_the_script() {
        let native = ReplyShape { request: RequestKind::NativeAcquire, ..acquire(1, 0, 0) };
        let refused = Some(NativeCommand::SetAll);
        for (wire, vote, is_repeated, refused) in [
            (":1\r\n", Vote::Granted, false, None),
            (":0\r\n", Vote::Failed, true, None),
            (":2\r\n", Vote::Failed, false, None),
            (OK, Vote::Failed, false, None),
            (NIL, Vote::Failed, false, None),
            ("-ERR unknown command 'MSETEX'\r\n", Vote::Failed, true, refused),
            ("-NOPERM no\r\n", Vote::Failed, true, refused),
            ("-OOM no\r\n", Vote::Failed, false, None),
            ("-READONLY no\r\n", Vote::Failed, false, None),
        ] {
            let replies = parsed(&[wire]);
            assert_eq!(native.read(&replies, &LockValue::of(b"v")).vote(), vote, "{wire}");
            assert_eq!(native.other_form(&replies), is_repeated.then_some(Form::Hash), "{wire}");
            assert_eq!(native.refused_native(&replies), refused, "{wire}");
        }
    }
}
