//! Which of the replies to a command says what.

use super::answer::{Answer, Obstacle, Remaining};
use super::reply::{Asked, answer, is_noscript};
use super::requests::Requests;
use super::script::Form;
use super::unknown_command::is_unknown_command;
use super::value::{MAX_VALUE, Value as Held};
use redis::Value;
use std::num::NonZeroU16;

/// How Redis begins to say, to `DELEX`, that the key is of another kind than a string.
const NO_STRING: &str = "Key should be of string type";

/// The replies to one command: how many there are, and where to find what it is about. Whoever writes
/// the command makes it, and reading goes by it. It is small, as each command on its way has one: a
/// thousand keys, which are the most, have two replies each and one for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyShape {
    pub(super) asked: Asked,
    pub(super) len: u16,
    /// Which reply is the answer.
    pub(super) verdict: u16,
    /// Which reply says how long a key in the way has to live, if the verdict does not. It follows the
    /// verdict, so it is never the first.
    pub(super) ttl: Option<NonZeroU16>,
    /// Which reply says what stands there, likewise.
    pub(super) holder: Option<NonZeroU16>,
    /// Which reply says whether the node will tell when that changes.
    pub(super) watch: Option<u16>,
}

impl ReplyShape {
    /// How many replies there are.
    pub(crate) fn len(&self) -> usize {
        self.len.into()
    }

    /// What `replies` say. The secret of `value`, which the command wrote, is kept out of the reason.
    pub(crate) fn read(&self, replies: &[Value], value: &Held) -> Answer {
        let Some(verdict) = replies.get(usize::from(self.verdict)) else {
            return Answer::unexpected("nothing");
        };
        match answer(self.asked, verdict, value) {
            Answer::Denied(obstacle) => Answer::Denied(self.told_of(obstacle, replies)),
            answer => answer,
        }
    }

    /// The obstacle, with what the replies beside the verdict tell of it.
    fn told_of(&self, mut obstacle: Obstacle, replies: &[Value]) -> Obstacle {
        let reply = |place: Option<NonZeroU16>| replies.get(usize::from(place?.get()));
        if let Some(Value::Int(pttl)) = reply(self.ttl) {
            obstacle.remaining = Remaining::of(*pttl);
        }
        if let Some(Value::BulkString(value)) = reply(self.holder)
            // Empty if the key has gone; cut off if it is longer than any lock's.
            && (1..=MAX_VALUE).contains(&value.len())
        {
            obstacle.value = Some(Held::of(value));
        }
        let watch = self.watch.and_then(|place| replies.get(usize::from(place)));
        obstacle.is_watched = watch == Some(&Value::Okay);
        obstacle
    }

    /// How the command is to be written instead, if `replies` say that it did nothing as it was.
    pub(crate) fn other_form(&self, replies: &[Value]) -> Option<Form> {
        let verdict = replies.get(usize::from(self.verdict))?;
        match (self.asked, verdict) {
            // What stands there instead, if anything, only the script tells.
            (Asked::Delete, Value::Int(0)) => Some(Form::Hash),
            (Asked::Delete, Value::ServerError(error)) => {
                let is_other = matches!(error.code(), "NOPERM" | "WRONGTYPE");
                let is_unknown = is_unknown_command(error.code(), error.details());
                (is_other || is_unknown).then_some(Form::Hash)
            }
            _ => is_noscript(verdict).then_some(Form::Source),
        }
    }

    /// True if the server refuses to delete by a command of its own: it does not know it, or does not allow it
    /// to us.
    pub(crate) fn is_native_refused(&self, replies: &[Value]) -> bool {
        match replies.get(usize::from(self.verdict)) {
            Some(Value::ServerError(error)) if self.asked == Asked::Delete => {
                // Redis has no code of its own for a key of another kind, as Valkey has.
                let is_kind = error.details().is_some_and(|why| why.starts_with(NO_STRING));
                let is_unknown = is_unknown_command(error.code(), error.details());
                error.code() == "NOPERM" || is_unknown && !is_kind
            }
            _ => false,
        }
    }
}

/// Adds what one command is made of to requests, and notes which of the replies says what.
pub(super) struct Writer<'a> {
    pub(super) requests: &'a mut Requests,
    /// How many stood there before.
    before: usize,
    shape: ReplyShape,
}

impl<'a> Writer<'a> {
    pub(super) fn new(asked: Asked, requests: &'a mut Requests) -> Self {
        let before = requests.len();
        let shape = ReplyShape { asked, len: 0, verdict: 0, ttl: None, holder: None, watch: None };
        Self { requests, before, shape }
    }

    /// A command of the server's own is asked, in place of a script.
    pub(super) fn note_native(&mut self) {
        self.shape.asked = Asked::Delete;
    }

    /// A lock is set, and its counter draws, in a script of their own.
    pub(super) fn note_draw(&mut self) {
        self.shape.asked = Asked::Draw;
    }

    /// The reply to what was added last is the answer.
    pub(super) fn note_verdict(&mut self) {
        self.shape.verdict = self.last();
    }

    /// The reply to what was added last is the ttl of what is in the way.
    pub(super) fn note_ttl(&mut self) {
        self.shape.ttl = NonZeroU16::new(self.last());
    }

    /// The reply to what was added last is what is in the way.
    pub(super) fn note_holder(&mut self) {
        self.shape.holder = NonZeroU16::new(self.last());
    }

    /// The reply to what was added last says whether changes will be told.
    pub(super) fn note_watch(&mut self) {
        self.shape.watch = Some(self.last());
    }

    /// The shape of the replies to all that was added.
    pub(super) fn shape(self) -> ReplyShape {
        ReplyShape { len: self.added(), ..self.shape }
    }

    /// The place of the reply to what was added last.
    fn last(&self) -> u16 {
        self.added().saturating_sub(1)
    }

    /// How many replies there are to what was added.
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

    /// An acquire with its verdict first, and what follows it at these places.
    fn acquire(len: u16, ttl: u16, holder: u16) -> ReplyShape {
        let (ttl, holder) = (NonZeroU16::new(ttl), NonZeroU16::new(holder));
        ReplyShape { asked: Asked::Acquire, len, verdict: 0, ttl, holder, watch: None }
    }

    fn obstacle(shape: ReplyShape, wire: &[&str]) -> Obstacle {
        match shape.read(&parsed(wire), &Held::of(b"v")) {
            Answer::Denied(obstacle) => obstacle,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_ttl_that_follows_tells_when_the_key_is_gone() {
        let remaining = |shape, wire: &[&str]| obstacle(shape, wire).remaining;
        let (plain, watched) = (acquire(2, 1, 0), acquire(3, 2, 0));
        let ms = |ms| Some(Remaining::For(Duration::from_millis(ms)));
        assert_eq!(remaining(acquire(1, 0, 0), &[NIL]), None, "not asked");
        assert_eq!(remaining(plain, &[NIL, TTL]), ms(70));
        assert_eq!(remaining(watched, &[NIL, OK, ":-2\r\n"]), ms(0), "gone");
        assert_eq!(remaining(watched, &[NIL, OK, ":-1\r\n"]), Some(Remaining::ForEver));
        assert_eq!(remaining(watched, &[NIL, "-ERR no\r\n", "-ERR no\r\n"]), None);
        assert_eq!(remaining(watched, &[NIL, TTL, "-ERR no\r\n"]), None, "no answer to that");
    }

    #[test]
    fn what_stands_in_the_way_is_told_with_its_ttl() {
        let (plain, watched) = (acquire(3, 1, 2), acquire(4, 2, 3));
        let remaining = Some(Remaining::For(Duration::from_millis(70)));
        let unknown = Obstacle { remaining, ..Obstacle::default() };
        let held = Obstacle { value: Some(Held::of(b"hi")), ..unknown.clone() };
        assert_eq!(obstacle(plain, &[NIL, TTL, VALUE]), held);
        assert_eq!(obstacle(watched, &[NIL, OK, TTL, VALUE]), held);
        assert_eq!(obstacle(plain, &[NIL, TTL, "-WRONGTYPE no\r\n"]), unknown);
        let ours = plain.read(&parsed(&[OK, TTL, VALUE]), &Held::of(b"v"));
        assert_eq!(ours.vote(), Vote::Granted, "what stands there is ours");
    }

    #[test]
    fn a_key_is_watched_that_the_node_has_said_it_watches() {
        let shape = ReplyShape { watch: Some(1), ..acquire(3, 2, 0) };
        let is_watched = |wire: &[&str]| obstacle(shape, wire).is_watched;
        assert!(is_watched(&[NIL, OK, TTL]));
        assert!(!is_watched(&[NIL, "-NOPERM no\r\n", TTL]));
        assert!(!obstacle(acquire(3, 2, 0), &[NIL, OK, TTL]).is_watched, "not asked");
    }

    #[test]
    fn a_script_that_is_not_known_is_found_at_the_verdict_alone() {
        let shape = ReplyShape { verdict: 2, ..acquire(3, 0, 0) };
        let unknown = shape.other_form(&parsed(&[OK, TTL, "-NOSCRIPT no\r\n"]));
        assert_eq!(unknown, Some(Form::Source));
        assert_eq!(shape.other_form(&parsed(&["-NOSCRIPT no\r\n", TTL, NIL])), None);
        assert_eq!(shape.other_form(&[]), None);
        assert_eq!(shape.read(&[], &Held::of(b"v")), Answer::unexpected("nothing"));
    }
}
