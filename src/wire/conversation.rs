//! What is said on one connection, without the connection: bytes in, bytes out.

use super::decoder::{Decoder, Malformed};
use super::pushed::{Pushed, Pushes};
use super::requests::Requests;
use redis::Value;
use std::collections::VecDeque;

/// Requests out, replies in. Each pipeline of requests has a `T` with it, which comes back with its replies.
#[derive(Debug)]
pub(crate) struct Conversation<T> {
    requests: Requests,
    /// How many of their bytes were sent.
    sent: usize,
    /// Not answered, or not all of them: the oldest first, with how many replies each has.
    pipelines: VecDeque<(usize, T)>,
    /// Those to the oldest that have come.
    replies: Vec<Value>,
    decoder: Decoder,
    pushes: Pushes,
}

impl<T> Conversation<T> {
    pub(crate) fn new() -> Self {
        Self {
            requests: Requests::default(),
            sent: 0,
            pipelines: VecDeque::new(),
            replies: Vec::new(),
            decoder: Decoder::default(),
            pushes: Pushes::default(),
        }
    }

    /// Where the requests of the next pipeline are added.
    pub(crate) fn requests(&mut self) -> &mut Requests {
        &mut self.requests
    }

    /// All requests that were added since the last one are a pipeline. Its replies come with `what`.
    pub(crate) fn end_pipeline(&mut self, what: T) {
        let count = self.requests.take_len();
        self.pipelines.push_back((count, what));
    }

    /// The bytes that are to be sent.
    pub(crate) fn to_send(&self) -> &[u8] {
        &self.requests.bytes()[self.sent..]
    }

    /// So many of them were sent.
    pub(crate) fn handle_sent(&mut self, count: usize) {
        self.sent += count;
        if self.to_send().is_empty() {
            self.requests.forget_bytes();
            self.sent = 0;
        }
    }

    /// These bytes have come.
    pub(crate) fn handle_bytes(&mut self, bytes: &[u8]) {
        self.decoder.add(bytes);
    }

    /// The oldest pipeline that is answered by what has come, with its replies. After an error nothing more
    /// can be told from the bytes.
    pub(crate) fn poll_replies(&mut self) -> Result<Option<(T, Vec<Value>)>, Malformed> {
        loop {
            if let Some(answered) = self.take_answered() {
                return Ok(Some(answered));
            }
            match self.decoder.next()? {
                None => return Ok(None),
                Some(Value::Push { kind, data }) => self.pushes.note(&kind, data),
                Some(_) if self.pipelines.is_empty() => {
                    return Err(Malformed("a reply to nothing"));
                }
                Some(reply) => self.replies.push(reply),
            }
        }
    }

    fn take_answered(&mut self) -> Option<(T, Vec<Value>)> {
        self.pipelines.front().filter(|(count, _)| self.replies.len() == *count)?;
        let (count, what) = self.pipelines.pop_front()?;
        // Those to the next one are as many, as a rule.
        let next = Vec::with_capacity(count);
        Some((what, std::mem::replace(&mut self.replies, next)))
    }

    /// What the server has pushed among the replies that were polled, if it has.
    pub(crate) fn poll_pushed(&mut self) -> Option<Pushed> {
        self.pushes.take()
    }

    /// True if [something was pushed](Self::poll_pushed).
    pub(crate) fn has_pushed(&self) -> bool {
        !self.pushes.is_empty()
    }

    /// What belongs to the pipelines that are not answered, the oldest first.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = &T> {
        self.pipelines.iter().map(|(_, what)| what)
    }

    /// How many pipelines are not answered.
    pub(crate) fn under_way(&self) -> usize {
        self.pipelines.len()
    }

    /// Takes what belongs to the pipelines that are not answered, the oldest first: nobody waits for their
    /// replies any more, and nothing may be added.
    pub(crate) fn take_unanswered(&mut self) -> impl Iterator<Item = T> {
        self.pipelines.drain(..).map(|(_, what)| what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(conversation: &mut Conversation<&'static str>, count: usize, what: &'static str) {
        for _ in 0..count {
            conversation.requests().command("PING", 0).end();
        }
        conversation.end_pipeline(what);
    }

    #[test]
    fn replies_go_to_their_pipelines_in_order_however_the_bytes_come() {
        let answers = b"+OK\r\n:1\r\n:2\r\n>2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n_\r\n";
        for cut in 0..answers.len() {
            let mut conversation = Conversation::new();
            ask(&mut conversation, 1, "one");
            ask(&mut conversation, 0, "none");
            ask(&mut conversation, 3, "three");
            let mut told = Vec::new();
            for part in [&answers[..cut], &answers[cut..]] {
                conversation.handle_bytes(part);
                while let Some(answered) = conversation.poll_replies().expect("replies") {
                    told.push(answered);
                }
            }
            let three = vec![Value::Int(1), Value::Int(2), Value::Nil];
            assert_eq!(told, [("one", vec![Value::Okay]), ("none", vec![]), ("three", three)]);
            assert!(conversation.has_pushed());
            let keys = vec![b"k".to_vec()];
            assert_eq!(conversation.poll_pushed(), Some(Pushed { keys, ..Pushed::default() }));
            assert_eq!(conversation.under_way(), 0);
        }
    }

    #[test]
    fn a_reply_that_nobody_asked_for_is_none() {
        let mut conversation = Conversation::new();
        ask(&mut conversation, 1, "one");
        conversation.handle_bytes(b"+OK\r\n+OK\r\n");
        let first = conversation.poll_replies().expect("a reply");
        assert_eq!(first, Some(("one", vec![Value::Okay])));
        assert_eq!(conversation.poll_replies(), Err(Malformed("a reply to nothing")));
    }

    #[test]
    fn what_was_sent_is_not_sent_again_and_what_is_unanswered_can_be_taken() {
        let mut conversation = Conversation::new();
        ask(&mut conversation, 2, "two");
        assert_eq!(conversation.to_send(), b"*1\r\n$4\r\nPING\r\n".repeat(2));
        conversation.handle_sent(14);
        ask(&mut conversation, 1, "one");
        assert_eq!(conversation.to_send(), b"*1\r\n$4\r\nPING\r\n".repeat(2));
        conversation.handle_sent(27);
        assert_eq!(conversation.to_send(), b"\n");
        conversation.handle_sent(1);
        assert_eq!(conversation.to_send(), b"");
        assert_eq!(conversation.unanswered().collect::<Vec<_>>(), [&"two", &"one"]);
        assert_eq!(conversation.under_way(), 2);
        assert_eq!(conversation.take_unanswered().collect::<Vec<_>>(), ["two", "one"]);
        assert_eq!(conversation.under_way(), 0);
    }
}
