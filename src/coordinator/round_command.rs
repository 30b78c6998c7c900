//! The command of a round, which is encoded once for all nodes.

use super::claim::Claim;
use crate::protocol::{NodeId, Time};
use crate::wire::{Capabilities, Command, Form, ReplyShape, Requests};
use std::sync::{Arc, OnceLock};

/// A command that several nodes receive.
#[derive(Debug)]
pub(super) struct RoundCommand {
    pub(super) claim: Arc<Claim>,
    pub(super) command: Command,
    first: OnceLock<Encoding>,
}

/// The bytes that the first node received. Other nodes receive the same if the command is written at the same time, in
/// the same form, to a server with the same capabilities.
#[derive(Debug)]
struct Encoding {
    at: Time,
    form: Form,
    can: Capabilities,
    bytes: Box<[u8]>,
    shape: ReplyShape,
}

impl RoundCommand {
    pub(super) fn new(claim: Arc<Claim>, command: Command) -> Self {
        Self { claim, command, first: OnceLock::new() }
    }

    /// Appends the command to `requests`.
    pub(super) fn write(
        &self,
        node: NodeId,
        form: Form,
        now: Time,
        can: Capabilities,
        requests: &mut Requests,
    ) -> ReplyShape {
        if let Some(first) = self.first.get()
            && (first.at, first.form, first.can) == (now, form, can)
        {
            requests.append_encoded(&first.bytes, first.shape.len());
            return first.shape;
        }
        let start = requests.bytes().len();
        let shape = self.command.write(self.claim.subject(node), form, now, can, requests);
        // The update of fencing counters is not the same on all nodes.
        if self.first.get().is_none() && self.claim.fence().is_none() {
            let bytes = requests.bytes()[start..].into();
            let _ = self.first.set(Encoding { at: now, form, can, bytes, shape });
        }
        shape
    }
}
