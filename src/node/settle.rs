//! What a node's task does with the replies to a pipeline.

use super::apply_guards::Received;
use super::backlog::Backlog;
use super::line::Written;
use super::queued_command::QueuedCommand;
use super::timer_clock::Moment;
use crate::protocol::Time;
use crate::sync::contain;
use crate::wire::{Abilities, Answer, NodeFailure, time_us};
use redis::Value;

impl Backlog {
    /// Casts the votes that the replies to what was `written` are, in their order. They were read by `now`: from
    /// then on they can count. Notes what the connection cannot do after all.
    pub(super) fn settle(
        &mut self,
        written: Written,
        replies: &[Value],
        now: Moment,
        can: &mut Abilities,
    ) -> Result<(), NodeFailure> {
        let Written { at, commands, sealed, .. } = written;
        let expected = commands.iter().map(QueuedCommand::replies).sum::<usize>()
            + usize::from(sealed.is_some());
        let time = match read_seal(replies, expected, sealed) {
            Ok(time) => time,
            Err(failure) => {
                self.handle_unanswered(commands, &failure);
                return Err(failure);
            }
        };
        let received = self.node.receive(sealed, time, now.ours);
        let is_told = self.node.are_answers_wanted();
        let mut again = Vec::new();
        let mut rest = replies;
        for command in commands {
            let (own, others) = rest.split_at(command.replies());
            if command.is_native_refused(own) {
                can.deletes = None;
            }
            again.extend(self.settle_one(command, own, (at, now.timer, received), is_told));
            rest = others;
        }
        self.inbox.splice(0..0, again);
        self.tell_owed();
        self.node.look(|| now.ours);
        Ok(())
    }

    /// Casts the vote that `replies` are. Returns the command if it is to be written again at once.
    fn settle_one(
        &mut self,
        mut command: QueuedCommand,
        replies: &[Value],
        (written, now, received): (Time, Time, Received),
        is_told: bool,
    ) -> Option<QueuedCommand> {
        if command.fall_back(replies) {
            return Some(command);
        }
        let (mut has_failed, mut is_freed) = (true, false);
        // Whatever goes wrong with one command, the others of the pipeline are settled, and what is owed
        // stays owed.
        let settled = contain(|| {
            let answer = command.read(replies)?;
            let failure = if let Answer::Failed(failure) = &answer { Some(failure) } else { None };
            has_failed = failure.is_some();
            command.note_refusal(failure.is_some_and(NodeFailure::is_lasting));
            command.note_answer(self.node.id, &answer);
            is_freed = matches!(answer, Answer::Granted(_)) && command.is_late();
            let answer = self.node.apply_guards(&command, answer, received);
            if is_told {
                self.node.tell_answer(&command, &answer, Some(now.since(written)));
            }
            command.answer_at(answer, received.at);
            Some(())
        });
        if settled.flatten().is_none() {
            has_failed = true;
            self.node.fail(&mut command, NodeFailure::Unexpected("it could not be read".into()));
        }
        if is_freed {
            // Whoever was told that the lock is given up has asked, or slept, before the node knew of it; and nodes
            // push nothing of what we do ourselves.
            command.claim().keys().iter().for_each(|key| self.node.tell(Some(key)));
        }
        let may_be_undone = command.is_release()
            && command.claim().is_in_doubt(self.node.id)
            && self.node.handover.may_undo(written);
        if !command.is_release() && !command.is_extension() {
            return None;
        }
        if has_failed || may_be_undone {
            self.keep(command);
            self.repeats.handle_failure(now, self.node.random());
        } else if self.owed.is_empty() {
            // Else there are others to be repeated.
            self.repeats.handle_success();
        }
        None
    }

    /// Fails what was written and not answered: it may still run.
    pub(super) fn handle_unanswered(
        &mut self,
        commands: Vec<QueuedCommand>,
        failure: &NodeFailure,
    ) {
        for mut command in commands {
            command.note_in_doubt(self.node.id);
            self.node.fail(&mut command, failure.clone());
            self.keep(command);
        }
        self.tell_owed();
    }
}

/// The errors that a `TIME` is not refused with, but what stands before it can be: a reply too many has put
/// that in the last place.
const NEVER_TO_TIME: [&str; 7] =
    ["OOM", "READONLY", "MISCONF", "NOREPLICAS", "WRONGTYPE", "NOSCRIPT", "MOVED"];

/// What time it is by the last of the `replies`, if that was asked; `TIME` may be forbidden to our user.
/// An error if they are out of step: not as many as `expected`, or the last is no time.
fn read_seal(
    replies: &[Value],
    expected: usize,
    sealed: Option<Time>,
) -> Result<Option<u64>, NodeFailure> {
    let out_of_step = || NodeFailure::Unexpected("replies out of step".into());
    match replies.last() {
        _ if replies.len() != expected => Err(out_of_step()),
        Some(Value::ServerError(error)) if sealed.is_some() => {
            let is_to_time = !NEVER_TO_TIME.contains(&error.code());
            is_to_time.then_some(None).ok_or_else(out_of_step)
        }
        Some(last) if sealed.is_some() => time_us(last).map(Some).ok_or_else(out_of_step),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn time() -> Value {
        redis::parse_redis_value(b"*2\r\n$1\r\n7\r\n$1\r\n5\r\n").expect("a time")
    }

    proptest! {
        #[test]
        fn replies_count_only_if_there_are_as_many_as_were_announced(
            expected in 1..9_usize, came in 0..9_usize, is_sealed: bool,
        ) {
            let mut replies = vec![Value::Okay; came];
            if let Some(last) = replies.last_mut() {
                *last = time();
            }
            let read = read_seal(&replies, expected, is_sealed.then_some(Time::from_nanos(1)));
            let told = is_sealed.then_some(7_000_005);
            prop_assert_eq!(read.ok(), (came == expected).then_some(told));
        }
    }

    #[test]
    fn a_seal_is_a_time_or_an_error() {
        let sealed = Some(Time::from_nanos(1));
        let error = redis::parse_redis_value(b"-NOPERM no\r\n").expect("an error reply");
        let read = |last: &Value| read_seal(&[Value::Okay, last.clone()], 2, sealed);
        assert_eq!(read(&time()), Ok(Some(7_000_005)));
        assert_eq!(read(&error), Ok(None), "it may not be asked");
        for code in NEVER_TO_TIME {
            let wire = format!("-{code} what a write is refused with\r\n");
            let shifted = redis::parse_redis_value(wire.as_bytes()).expect("an error reply");
            assert!(read(&shifted).is_err(), "a stray reply before a refused write: {code}");
        }
        for other in [Value::Okay, Value::Nil, Value::Int(7), Value::Array(vec![time()])] {
            assert!(read(&other).is_err(), "{other:?}");
        }
        assert_eq!(read_seal(&[Value::Okay], 1, None), Ok(None), "not asked");
    }
}
