//! Matches the replies on one connection to its request pipelines, without I/O.

use super::decoder::{Decoder, Malformed};
use super::failure::last_error;
use super::invalidations::{InvalidationBuffer, Invalidations};
use super::requests::{LOCK_REPLY, Requests};
use redis::{ServerError, Value};
use std::collections::VecDeque;

/// The request pipelines of one connection and the replies received so far. The caller attaches a context `T` to each
/// pipeline, and [`poll_replies`](Self::poll_replies) returns it together with the replies.
#[derive(Debug)]
pub(crate) struct Conversation<T> {
    requests: Requests,
    /// Number of bytes of `requests` that were sent.
    sent: usize,
    /// Number of bytes sent before the first byte of `requests`.
    sent_before: u64,
    /// Number of bytes that were marked as sent, but that the stream has not accepted yet.
    unsent: usize,
    /// Unanswered pipelines, oldest first.
    pipelines: VecDeque<Pipeline<T>>,
    /// Offset in the outgoing byte stream at which the last answered pipeline ends.
    answered_end: u64,
    /// Replies to the oldest unanswered pipeline, received so far.
    replies: Vec<Value>,
    decoder: Decoder,
    pushes: InvalidationBuffer,
    /// The first error reply that belongs to no request. A server sends such an error if a new connection exceeds the
    /// server's connection limit, or if the server cannot parse a command and closes the connection.
    stray_error: Option<ServerError>,
}

#[derive(Debug)]
struct Pipeline<T> {
    count: usize,
    /// Maximum length of one reply, in bytes.
    longest: usize,
    /// Offset in the outgoing byte stream at which the pipeline ends.
    end: u64,
    context: T,
}

/// If the allocation for replies has room for this many times as many, it is freed.
const MAX_IDLE_REPLIES: usize = 64;

/// The error for a reply without a matching request. The client matches replies by order alone, so the stream is out of
/// sync after an unsolicited reply.
const UNSOLICITED: Malformed = Malformed("unsolicited reply");

impl<T> Conversation<T> {
    pub(crate) fn new() -> Self {
        Self {
            requests: Requests::default(),
            sent: 0,
            sent_before: 0,
            unsent: 0,
            pipelines: VecDeque::new(),
            answered_end: 0,
            replies: Vec::new(),
            decoder: Decoder::default(),
            pushes: InvalidationBuffer::default(),
            stray_error: None,
        }
    }

    pub(crate) fn requests(&mut self) -> &mut Requests {
        &mut self.requests
    }

    /// Combines the requests that were added since the last call into one pipeline with the given `context`.
    pub(crate) fn end_pipeline(&mut self, context: T) {
        let (count, longest) = (self.requests.take_len(), self.requests.take_longest_reply());
        let end = self.sent_before + self.requests.bytes().len() as u64;
        self.pipelines.push_back(Pipeline { count, longest, end, context });
    }

    pub(crate) fn to_send(&self) -> &[u8] {
        &self.requests.bytes()[self.sent..]
    }

    pub(crate) fn handle_sent(&mut self, count: usize) {
        self.sent += count;
        if self.to_send().is_empty() {
            self.sent_before = self.total_sent();
            self.requests.clear_sent_bytes();
            self.sent = 0;
        }
    }

    /// Records that the stream has not accepted the last `count` bytes that were marked as sent.
    pub(crate) fn handle_unsent(&mut self, count: usize) {
        self.unsent = count;
    }

    fn total_sent(&self) -> u64 {
        self.sent_before + self.sent as u64 - self.unsent as u64
    }

    pub(crate) fn handle_bytes(&mut self, bytes: &[u8]) {
        self.decoder.add(bytes);
    }

    /// Returns the context and the replies of the oldest pipeline, or `None` until all its replies have arrived. After
    /// an error, the stream is out of sync, and the caller must close the connection.
    pub(crate) fn poll_replies(&mut self) -> Result<Option<(T, Vec<Value>)>, Malformed> {
        loop {
            if let Some(answered) = self.take_answered()? {
                return Ok(Some(answered));
            }
            let oldest = self.pipelines.front();
            let longest = oldest.map_or(LOCK_REPLY, |pipeline| pipeline.longest);
            match self.decoder.next(longest)? {
                None => return Ok(None),
                Some(Value::Push { kind, data }) => self.pushes.record(&kind, data),
                Some(reply)
                    if self.pipelines.is_empty() || self.answered_end >= self.total_sent() =>
                {
                    if let Value::ServerError(error) = reply {
                        self.stray_error.get_or_insert(error);
                    }
                    return Err(UNSOLICITED);
                }
                Some(_) if self.stray_error.is_some() => return Err(UNSOLICITED),
                // The error answers no command: the server could not parse the request and closes the connection.
                Some(Value::ServerError(error)) if is_protocol_error(&error) => {
                    self.stray_error = Some(error);
                }
                Some(reply) => {
                    if self.replies.is_empty() {
                        self.replies.reserve_exact(oldest.map_or(0, |pipeline| pipeline.count));
                    }
                    self.replies.push(reply);
                }
            }
        }
    }

    /// Removes the oldest pipeline and returns its context and replies. Returns `None` until all its replies have
    /// arrived.
    ///
    /// Fails if the pipeline was not sent completely, or if it is the last pipeline and another reply follows. In both
    /// cases, any of the earlier replies may be the unsolicited one.
    fn take_answered(&mut self) -> Result<Option<(T, Vec<Value>)>, Malformed> {
        let Some(oldest) = self.pipelines.front() else { return Ok(None) };
        if self.replies.len() < oldest.count {
            return Ok(None);
        }
        let is_last = self.pipelines.len() == 1;
        if oldest.end > self.total_sent() || is_last && self.decoder.has_reply() {
            return Err(UNSOLICITED);
        }
        let Some(Pipeline { end, context, .. }) = self.pipelines.pop_front() else {
            return Ok(None);
        };
        self.answered_end = end;
        Ok(Some((context, std::mem::take(&mut self.replies))))
    }

    /// Frees the memory of the set-up, which is much longer than most pipelines. No pipeline may be in flight.
    pub(crate) fn end_set_up(&mut self) {
        self.requests.free();
        self.decoder.free();
    }

    /// Reuses the allocation of `replies` for the next pipeline, unless it is much larger than needed.
    pub(crate) fn reuse(&mut self, mut replies: Vec<Value>) {
        if self.replies.is_empty() && replies.capacity() <= MAX_IDLE_REPLIES * replies.len() {
            replies.clear();
            self.replies = replies;
        }
    }

    pub(crate) fn is_partly_answered(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Returns the error that probably explains why the server closed the connection. It is a reply that belongs to no
    /// request, or the last reply received for the oldest unanswered pipeline. Returns `None` if this reply is not an
    /// error.
    pub(crate) fn last_error(&self) -> Option<String> {
        match (&self.stray_error, self.replies.last()) {
            (Some(error), _) | (None, Some(Value::ServerError(error))) => Some(last_error(error)),
            _ => None,
        }
    }

    pub(crate) fn poll_invalidations(&mut self) -> Option<Invalidations> {
        self.pushes.take()
    }

    pub(crate) fn unanswered(&self) -> impl Iterator<Item = &T> {
        self.pipelines.iter().map(|pipeline| &pipeline.context)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.pipelines.len()
    }

    /// Removes the unanswered pipelines and returns their contexts, oldest first. The caller must not add requests
    /// afterwards.
    pub(crate) fn take_unanswered(&mut self) -> impl Iterator<Item = T> {
        self.pipelines.drain(..).map(|pipeline| pipeline.context)
    }
}

/// Returns true if `error` reports a request that Redis cannot parse, for example because a string is too long.
fn is_protocol_error(error: &ServerError) -> bool {
    error.code() == "ERR" && error.details().is_some_and(|text| text.starts_with("Protocol error"))
}

#[cfg(test)]
mod tests {
    use super::super::requests::INFO_REPLY;
    use super::*;

    fn ask(conversation: &mut Conversation<&'static str>, count: usize, context: &'static str) {
        for _ in 0..count {
            conversation.requests().command("PING", 0).end();
        }
        conversation.end_pipeline(context);
    }

    fn send(conversation: &mut Conversation<&'static str>, most: usize) {
        let count = conversation.to_send().len().min(most);
        conversation.handle_sent(count);
    }

    #[test]
    fn replies_match_pipelines_for_every_chunk_boundary() {
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
            let keys = vec![b"k".to_vec()];
            assert_eq!(
                conversation.poll_invalidations(),
                Some(Invalidations { keys, ..Invalidations::default() })
            );
            assert_eq!(conversation.in_flight(), 0);
        }
    }

    #[test]
    fn unsolicited_reply_is_an_error() {
        let mut conversation = Conversation::new();
        ask(&mut conversation, 1, "one");
        send(&mut conversation, usize::MAX);
        conversation.handle_bytes(b"+OK\r\n");
        let first = conversation.poll_replies().expect("a reply");
        assert_eq!(first, Some(("one", vec![Value::Okay])));
        conversation.handle_bytes(b"+OK\r\n");
        assert_eq!(conversation.poll_replies(), Err(UNSOLICITED));
    }

    #[test]
    fn protocol_error_is_not_a_command_reply() {
        let mut conversation = Conversation::new();
        ask(&mut conversation, 2, "something");
        send(&mut conversation, usize::MAX);
        conversation.handle_bytes(b"+OK\r\n-ERR Protocol error: invalid bulk length\r\n");
        assert_eq!(conversation.poll_replies(), Ok(None), "the server closes the connection");
        conversation.handle_bytes(b"+OK\r\n");
        assert_eq!(conversation.poll_replies(), Err(UNSOLICITED));
    }

    #[test]
    fn last_error_is_from_incomplete_pipeline_or_stray() {
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
    fn extra_reply_invalidates_the_pipeline() {
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
    fn reply_over_the_length_limit_is_an_error() {
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
            assert_eq!(answered.map(|(context, _)| context), Some("one"));
            conversation.handle_bytes(half.as_bytes());
            conversation.poll_replies().expect_err("the next command allows less");
        }
    }

    #[test]
    fn reply_to_unsent_request_is_an_error() {
        // Each case: how many bytes of two pipelines with two requests each were sent, and how many replies are
        // accepted.
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
                assert_eq!(end, if is_possible { Ok(()) } else { Err(UNSOLICITED) });
                assert_eq!(
                    answered,
                    replies.min(possible) / 2,
                    "{replies} replies to {sent} bytes"
                );
            }
        }
    }

    #[test]
    fn sent_bytes_are_not_repeated_and_unanswered_can_be_taken() {
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
        assert_eq!(conversation.in_flight(), 2);
        assert_eq!(conversation.take_unanswered().collect::<Vec<_>>(), ["two", "one"]);
        assert_eq!(conversation.in_flight(), 0);
    }
}
