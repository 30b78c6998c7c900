//! A command that is sent to several nodes, which share the encoded bytes where possible.

use super::claim::Claim;
use crate::protocol::{NodeId, Time};
use crate::wire::{Capabilities, Command, Form, ReplyShape, Requests};
use std::sync::{Arc, OnceLock};

#[derive(Debug)]
pub(super) struct RoundCommand {
    pub(super) claim: Arc<Claim>,
    pub(super) command: Command,
    first: OnceLock<Encoding>,
}

/// The bytes of the command as encoded for the first node. Another node reuses the bytes if the time, the [`Form`] and
/// the server capabilities are the same.
#[derive(Debug)]
struct Encoding {
    at: Time,
    form: Form,
    can: Capabilities,
    is_reader: bool,
    bytes: Box<[u8]>,
    shape: ReplyShape,
}

impl RoundCommand {
    pub(super) fn new(claim: Arc<Claim>, command: Command) -> Self {
        Self { claim, command, first: OnceLock::new() }
    }

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
            && first.is_reader == self.claim.is_reader()
        {
            requests.append_encoded(&first.bytes, first.shape.len());
            return first.shape;
        }
        let start = requests.bytes().len();
        let shape = self.command.write(self.claim.subject(node), form, now, can, requests);
        // Fencing counters are updated differently on each node, so the bytes cannot be shared.
        if self.first.get().is_none() && self.claim.fence().is_none() {
            let (is_reader, bytes) = (self.claim.is_reader(), requests.bytes()[start..].into());
            let _ = self.first.set(Encoding { at: now, form, can, is_reader, bytes, shape });
        }
        shape
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Ttl;
    use crate::wire::{CounterKeys, Counters, Keys, SharedKeys, Value};
    use std::time::Duration;

    const CAN: Capabilities = Capabilities { tracks: false, deletes: None, sets_all: false };

    fn at(ms: u64) -> Time {
        Time::default().after(Duration::from_millis(ms))
    }

    fn claim(fence: Option<Counters>) -> Arc<Claim> {
        let keys = Keys::one(b"k".as_slice().into());
        Arc::new(Claim::new(keys, Value::of(b"v"), fence, 3, at(25)))
    }

    fn written(
        command: &RoundCommand,
        form: Form,
        now: Time,
        can: Capabilities,
    ) -> (Vec<u8>, Vec<u8>) {
        let (node, mut shared, mut alone) =
            (NodeId::new(1), Requests::default(), Requests::default());
        let shape = command.write(node, form, now, can, &mut shared);
        let subject = command.claim.subject(node);
        assert_eq!(shape, command.command.write(subject, form, now, can, &mut alone));
        assert_eq!(shared.len(), alone.len());
        (shared.bytes().to_vec(), alone.bytes().to_vec())
    }

    #[test]
    fn nodes_share_the_bytes_of_one_time_form_and_server_kind() {
        let command =
            RoundCommand::new(claim(None), Command::Extend { until: at(900), watches: true });
        let tracking = Capabilities { tracks: true, ..CAN };
        for (form, now, can) in [
            (Form::Native, at(1), CAN),
            (Form::Native, at(1), CAN),
            (Form::Native, at(2), CAN),
            (Form::Source, at(1), CAN),
            (Form::Native, at(1), tracking),
        ] {
            let (shared, alone) = written(&command, form, now, can);
            assert_eq!(shared, alone);
        }
        assert!(command.first.get().is_some());
    }

    #[test]
    fn downgraded_claim_is_encoded_again() {
        let keys = SharedKeys::for_key(b"k").expect("a plain key");
        let (lock, value) = (Keys::one(b"k".as_slice().into()), Value::of(b"v"));
        let writer = Claim::new(lock, value, None, 3, at(25)).shared(Arc::new(keys), false, None);
        let extend = Command::Extend { until: at(900), watches: false };
        let command = RoundCommand::new(Arc::new(writer), extend);
        let (before, _) = written(&command, Form::Native, at(1), CAN);
        command.claim.downgrade();
        let (shared, alone) = written(&command, Form::Native, at(1), CAN);
        assert_eq!(shared, alone);
        assert_ne!(shared, before);
    }

    #[test]
    fn commands_with_fencing_counters_are_encoded_for_each_node() {
        let keys = Keys::one(b"k".as_slice().into());
        let counters = CounterKeys::for_keys(&keys, Ttl::SHORTEST).expect("a plain key");
        let fence = Counters::new(Arc::new(counters), 7);
        let command = RoundCommand::new(claim(Some(fence)), Command::Release { cooling: None });
        let (shared, alone) = written(&command, Form::Native, at(1), CAN);
        assert_eq!(shared, alone);
        assert!(command.first.get().is_none());
    }
}
