//! What is said on one connection, without the connection: bytes in, bytes out.

use super::decoder::{Decoder, Malformed};
use super::failure::last_error;
use super::pushed::{Pushed, Pushes};
use super::requests::{LOCK_REPLY, Requests};
use redis::{ServerError, Value};
use std::collections::VecDeque;

/// Requests out, replies in. Each pipeline of requests has a `T` with it, which comes back with its replies.
#[derive(Debug)]
pub(crate) struct Conversation<T> {
    requests: Requests,
    /// How many of their bytes were sent.
    sent: usize,
    /// How many bytes were sent before those.
    sent_before: u64,
    /// Not answered, or not all of them: the oldest first.
    pipelines: VecDeque<Pipeline<T>>,
    /// Where those begin, among all bytes that were ever to be sent.
    answered: u64,
    /// Those to the oldest that have come.
    replies: Vec<Value>,
    decoder: Decoder,
    pushes: Pushes,
    /// The first error reply that matches no request: a server at its connection limit sends one on accept, and one
    /// that could not read a command before it closes the connection.
    stray_error: Option<ServerError>,
}

#[derive(Debug)]
struct Pipeline<T> {
    /// How many replies it has.
    count: usize,
    /// How many bytes each of them may have.
    longest: usize,
    /// Where it ends, among all bytes that were ever to be sent.
    end: u64,
    what: T,
}

/// Replies are told apart by their order alone. Where this is found, they are not in step.
const TO_NOTHING: Malformed = Malformed("a reply to nothing");

impl<T> Conversation<T> {
    pub(crate) fn new() -> Self {
        Self {
            requests: Requests::default(),
            sent: 0,
            sent_before: 0,
            pipelines: VecDeque::new(),
            answered: 0,
            replies: Vec::new(),
            decoder: Decoder::default(),
            pushes: Pushes::default(),
            stray_error: None,
        }
    }

    /// Where the requests of the next pipeline are added.
    pub(crate) fn requests(&mut self) -> &mut Requests {
        &mut self.requests
    }

    /// All requests that were added since the last one are a pipeline. Its replies come with `what`.
    pub(crate) fn end_pipeline(&mut self, what: T) {
        let (count, longest) = (self.requests.take_len(), self.requests.take_longest_reply());
        let end = self.sent_before + self.requests.bytes().len() as u64;
        self.pipelines.push_back(Pipeline { count, longest, end, what });
    }

    /// The bytes that are to be sent.
    pub(crate) fn to_send(&self) -> &[u8] {
        &self.requests.bytes()[self.sent..]
    }

    /// So many of them were sent.
    pub(crate) fn handle_sent(&mut self, count: usize) {
        self.sent += count;
        if self.to_send().is_empty() {
            self.sent_before = self.all_sent();
            self.requests.forget_bytes();
            self.sent = 0;
        }
    }

    /// How many bytes were ever sent.
    fn all_sent(&self) -> u64 {
        self.sent_before + self.sent as u64
    }

    /// These bytes have come.
    pub(crate) fn handle_bytes(&mut self, bytes: &[u8]) {
        self.decoder.add(bytes);
    }

    /// The oldest pipeline that is answered by what has come, with its replies. After an error nothing more
    /// can be told from the bytes.
    pub(crate) fn poll_replies(&mut self) -> Result<Option<(T, Vec<Value>)>, Malformed> {
        loop {
            if let Some(answered) = self.take_answered()? {
                return Ok(Some(answered));
            }
            let oldest = self.pipelines.front();
            let longest = oldest.map_or(LOCK_REPLY, |pipeline| pipeline.longest);
            match self.decoder.next(longest)? {
                None => return Ok(None),
                Some(Value::Push { kind, data }) => self.pushes.note(&kind, data),
                Some(reply) if self.pipelines.is_empty() || self.answered >= self.all_sent() => {
                    if let Value::ServerError(error) = reply {
                        self.stray_error.get_or_insert(error);
                    }
                    return Err(TO_NOTHING);
                }
                Some(_) if self.stray_error.is_some() => return Err(TO_NOTHING),
                // It answers no command: the server could not read one, and closes the connection.
                Some(Value::ServerError(error)) if is_protocol_error(&error) => {
                    self.stray_error = Some(error);
                }
                Some(reply) => self.replies.push(reply),
            }
        }
    }

    /// Takes the oldest pipeline, if it is answered. An error if that was not sent as a whole, or if another reply has
    /// come and nothing more was asked: one of those before was to nothing, and nobody knows which.
    fn take_answered(&mut self) -> Result<Option<(T, Vec<Value>)>, Malformed> {
        let Some(oldest) = self.pipelines.front() else { return Ok(None) };
        if self.replies.len() < oldest.count {
            return Ok(None);
        }
        let is_last = self.pipelines.len() == 1;
        if oldest.end > self.all_sent() || is_last && self.decoder.has_reply() {
            return Err(TO_NOTHING);
        }
        let Some(Pipeline { count, end, what, .. }) = self.pipelines.pop_front() else {
            return Ok(None);
        };
        self.answered = end;
        // Those to the next one are as many, as a rule.
        let next = Vec::with_capacity(count);
        Ok(Some((what, std::mem::replace(&mut self.replies, next))))
    }

    /// True if the oldest pipeline has replies to some of its requests.
    pub(crate) fn is_partly_answered(&self) -> bool {
        !self.replies.is_empty()
    }

    /// The error reply that the server sent last, if no complete pipeline has it: why it closed the connection.
    pub(crate) fn last_error(&self) -> Option<String> {
        match (&self.stray_error, self.replies.last()) {
            (Some(error), _) | (None, Some(Value::ServerError(error))) => Some(last_error(error)),
            _ => None,
        }
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
        self.pipelines.iter().map(|pipeline| &pipeline.what)
    }

    /// How many pipelines are not answered.
    pub(crate) fn under_way(&self) -> usize {
        self.pipelines.len()
    }

    /// Takes what belongs to the pipelines that are not answered, the oldest first: nobody waits for their
    /// replies any more, and nothing may be added.
    pub(crate) fn take_unanswered(&mut self) -> impl Iterator<Item = T> {
        self.pipelines.drain(..).map(|pipeline| pipeline.what)
    }
}

/// True for the error by which Redis refuses bytes that are no command, for example because a string is too long.
fn is_protocol_error(error: &ServerError) -> bool {
    error.code() == "ERR" && error.details().is_some_and(|text| text.starts_with("Protocol error"))
}

#[cfg(test)]
mod tests {
    use super::super::requests::INFO_REPLY;
    use super::*;

    fn ask(conversation: &mut Conversation<&'static str>, count: usize, what: &'static str) {
        for _ in 0..count {
            conversation.requests().command("PING", 0).end();
        }
        conversation.end_pipeline(what);
    }

    fn send(conversation: &mut Conversation<&'static str>, most: usize) {
        let count = conversation.to_send().len().min(most);
        conversation.handle_sent(count);
    }

    #[test]
    fn replies_go_to_their_pipelines_in_order_however_the_bytes_come() {
        let answers = b"+OK\r\n:1\r\n:2\r\n>2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n_\r\n";
        for cut in 0..answers.len() {
            let mut conversation = Conversation::new();
            ask(&mut conversation, 1, "one");
            ask(&mut conversation, 0, "none");
            ask(&mut conversation, 3, "three");
            send(&mut conversation, usize::MAX);
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
        send(&mut conversation, usize::MAX);
        conversation.handle_bytes(b"+OK\r\n");
        let first = conversation.poll_replies().expect("a reply");
        assert_eq!(first, Some(("one", vec![Value::Okay])));
        conversation.handle_bytes(b"+OK\r\n");
        assert_eq!(conversation.poll_replies(), Err(TO_NOTHING));
    }

    #[test]
    fn protocol_error_answers_no_command() {
        let mut conversation = Conversation::new();
        ask(&mut conversation, 2, "something");
        send(&mut conversation, usize::MAX);
        conversation.handle_bytes(b"+OK\r\n-ERR Protocol error: invalid bulk length\r\n");
        assert_eq!(conversation.poll_replies(), Ok(None), "the server closes the connection");
        conversation.handle_bytes(b"+OK\r\n");
        assert_eq!(conversation.poll_replies(), Err(TO_NOTHING));
    }

    #[test]
    fn last_error_is_that_of_an_incomplete_pipeline_or_a_stray_one() {
        const UNREADABLE: &str = "-ERR Protocol error: too long\r\n";
        let full = "ERR max number of clients reached";
        for (asked, is_sent, answers, told) in [
            (2, true, "-ERR max number of clients reached\r\n", Some(full)),
            (2, false, "-ERR max number of clients reached\r\n", Some(full)),
            (0, false, "-ERR max number of clients reached\r\n", Some(full)),
            (1, true, "-ERR max number of clients reached\r\n", None),
            (2, true, "+OK\r\n", None),
            (3, true, "-ERR no\r\n+OK\r\n", None),
            (1, true, UNREADABLE, Some("ERR Protocol error: too long")),
            (0, false, "+OK\r\n", None),
        ] {
            let mut conversation = Conversation::new();
            if asked > 0 {
                ask(&mut conversation, asked, "something");
            }
            send(&mut conversation, if is_sent { usize::MAX } else { 0 });
            conversation.handle_bytes(answers.as_bytes());
            let _ = conversation.poll_replies();
            assert_eq!(conversation.last_error().as_deref(), told, "{answers:?} to {asked}");
        }
    }

    #[test]
    fn of_a_reply_too_many_nobody_knows_which_it_is() {
        for (answers, is_answered) in [
            (b"+OK\r\n:1\r\n".as_slice(), false),
            (b"+OK\r\n+", false),
            (b"+OK\r\n>2\r\n$10\r\ninvalidate\r\n_\r\n", true),
            (b"+OK\r\n>", true),
        ] {
            let mut conversation = Conversation::new();
            ask(&mut conversation, 1, "one");
            send(&mut conversation, usize::MAX);
            conversation.handle_bytes(answers);
            assert_eq!(conversation.poll_replies().is_ok(), is_answered, "{answers:?}");
            let unanswered: &[&str] = if is_answered { &[] } else { &["one"] };
            assert_eq!(conversation.take_unanswered().collect::<Vec<_>>(), unanswered);
        }
    }

    #[test]
    fn reply_that_is_longer_than_its_command_allows_is_none() {
        let half = format!("${}\r\n{}", 1 << 20, "x".repeat(INFO_REPLY / 2));
        for (longest, is_allowed) in
            [(LOCK_REPLY, false), (INFO_REPLY, false), (INFO_REPLY + 12, true)]
        {
            let mut conversation = Conversation::new();
            conversation.requests().allow_reply(longest);
            ask(&mut conversation, 1, "one");
            ask(&mut conversation, 1, "short");
            send(&mut conversation, usize::MAX);
            conversation.handle_bytes(half.as_bytes());
            assert_eq!(conversation.poll_replies().is_ok(), is_allowed, "{longest}");
            if !is_allowed {
                continue;
            }
            conversation.handle_bytes(format!("{}\r\n", &half[10..]).as_bytes());
            let answered = conversation.poll_replies().expect("a reply");
            assert_eq!(answered.map(|(what, _)| what), Some("one"));
            conversation.handle_bytes(half.as_bytes());
            conversation.poll_replies().expect_err("the next command allows less");
        }
    }

    #[test]
    fn what_was_not_sent_is_not_answered() {
        // How much of two pipelines of two was sent, and how many replies that can have.
        for (sent, possible) in [(0, 0), (1, 1), (27, 1), (28, 2), (29, 3), (55, 3), (56, 4)] {
            for replies in 1..=4 {
                let mut conversation = Conversation::new();
                ask(&mut conversation, 2, "first");
                ask(&mut conversation, 2, "second");
                send(&mut conversation, sent);
                conversation.handle_bytes(&b"+OK\r\n".repeat(replies));
                let mut answered = 0;
                let end = loop {
                    match conversation.poll_replies() {
                        Ok(Some(_)) => answered += 1,
                        Ok(None) => break Ok(()),
                        Err(error) => break Err(error),
                    }
                };
                let is_possible = replies <= possible;
                assert_eq!(end, if is_possible { Ok(()) } else { Err(TO_NOTHING) });
                assert_eq!(
                    answered,
                    replies.min(possible) / 2,
                    "{replies} replies to {sent} bytes"
                );
            }
        }
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
