//! What a node's task does with the replies to a pipeline.

use super::apply_guards::Received;
use super::backlog::Backlog;
use super::line::Written;
use super::queued_command::QueuedCommand;
use super::timer_clock::Moment;
use crate::protocol::Time;
use crate::sync::contain;
use crate::wire::{Answer, Capabilities, NodeFailure, verify_sync};
use redis::Value;

impl Backlog {
    /// Casts the votes that the replies to what was `written` are, in their order. They were read by `now`: from
    /// then on they can count. Notes what the connection cannot do after all. An error if the connection is to be
    /// replaced: the replies are out of step, or the server [refuses](Self::refusal_of_all) all writes over it.
    pub(super) fn settle(
        &mut self,
        written: Written,
        replies: &[Value],
        now: Moment,
        can: &mut Capabilities,
    ) -> Result<(), NodeFailure> {
        let Written { at, commands, sealed, .. } = written;
        let expected = commands.iter().map(QueuedCommand::replies).sum::<usize>()
            + usize::from(sealed.is_some());
        let time = match verify_sync(replies, expected, sealed.is_some()) {
            Ok(time) => time,
            Err(failure) => {
                self.handle_unanswered(commands, &failure);
                return Err(failure);
            }
        };
        let received = self.node.receive(sealed, time, now.ours);
        let (mut again, mut refusal) = (Vec::new(), None);
        let mut rest = replies;
        for command in commands {
            let (own, others) = rest.split_at(command.replies());
            if command.is_native_refused(own) {
                can.deletes = None;
            }
            again.extend(self.settle_one(command, own, (at, now.timer, received), &mut refusal));
            rest = others;
        }
        self.inbox.splice(0..0, again);
        self.emit_pending_releases();
        self.node.emit_health(|| now.ours);
        refusal.and_then(|refusal| self.refusal_of_all(refusal, now.timer)).map_or(Ok(()), Err)
    }

    /// Returns `refusal` if it is a reason to resolve the node's address and to connect again. `MOVED` may concern one
    /// key while other keys are served, so it ends a connection at most once per pause.
    fn refusal_of_all(&mut self, refusal: NodeFailure, now: Time) -> Option<NodeFailure> {
        if refusal.is_moved() {
            if now < self.moves.next_try() {
                return None;
            }
            self.moves.handle_failure(now, self.node.random());
        }
        Some(refusal)
    }

    /// Casts the vote that `replies` are, and notes a `refusal` of all commands. Returns the command if it is to be
    /// written again at once.
    fn settle_one(
        &mut self,
        mut command: QueuedCommand,
        replies: &[Value],
        (written, now, received): (Time, Time, Received),
        refusal: &mut Option<NodeFailure>,
    ) -> Option<QueuedCommand> {
        if command.is_isolated() {
            self.isolated.handle_success();
        }
        if command.fall_back(replies) {
            command.note_answered(received.at, false);
            return Some(command);
        }
        let (mut has_failed, mut is_freed) = (true, false);
        // Whatever goes wrong with one command, the others of the pipeline are settled, and what is owed
        // stays owed.
        let settled = contain(|| {
            let answer = command.read(replies)?;
            let failure = if let Answer::Failed(failure) = &answer { Some(failure) } else { None };
            has_failed = failure.is_some();
            command.note_answered(received.at, has_failed);
            if let Some(failure) = failure.filter(|it| it.refuses_every_write() || it.is_moved()) {
                *refusal = Some(failure.clone());
            }
            command.note_answer(self.node.id, &answer);
            is_freed = matches!(answer, Answer::Granted(_)) && command.is_late();
            let answer = self.node.apply_guards(&command, answer, received);
            self.node.emit_command(&command, &answer, Some(now.since(written)));
            command.answer_at(answer, received.at);
            Some(())
        });
        if settled.flatten().is_none() {
            has_failed = true;
            self.node.fail(&mut command, NodeFailure::Unexpected("cannot be parsed".into()));
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
            if command.is_isolated() {
                self.isolated.handle_failure(self.node.timer.now(), self.node.random());
            }
            command.note_unanswered();
            command.note_in_doubt(self.node.id);
            self.node.fail(&mut command, failure.clone());
            self.keep(command);
        }
        self.emit_pending_releases();
    }
}
