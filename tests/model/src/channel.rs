//! Messages between one client and one node, packed in one word.

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// `SET NX PX`.
    Set,
    /// Sets the full ttl again if the value matches.
    Extend,
    /// Deletes if the value matches.
    Release,
}

/// A request, with the attempt whose value it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Kind of the request.
    pub(crate) verb: Verb,
    /// Attempt whose value it carries. Every attempt has a fresh value (I7).
    pub(crate) attempt: u8,
}

/// A grant in the client's current round.
///
/// The model keeps only grants. After a refusal a client may give up, which it may do at any time;
/// a lost refusal has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantState {
    /// No grant.
    None,
    /// On its way to the client.
    Coming,
    Received,
}

const BITS: u32 = 4;
const FIELD: u32 = (1 << BITS) - 1;
const SLOTS: u32 = 7;
/// Lowest bit of each request's verb.
const VERBS: u32 = 0x1111_1110;

/// A queue of requests in the upper seven fields; the grant in the lowest field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Channel(u32);

impl Channel {
    pub(crate) fn requests(self) -> impl Iterator<Item = Request> {
        (1..=SLOTS).map_while(move |slot| {
            let field = (self.0 >> (slot * BITS)) & FIELD;
            let verb = match field & 3 {
                0 => return None,
                1 => Verb::Set,
                2 => Verb::Extend,
                _ => Verb::Release,
            };
            Some(Request { verb, attempt: u8::try_from(field >> 2).expect("a field of two bits") })
        })
    }

    pub(crate) fn push(&mut self, verb: Verb, attempt: u8) {
        let slot = u32::try_from(self.requests().count()).expect("at most seven requests") + 1;
        assert!(slot <= SLOTS && attempt < 4, "the bounds of the setting are too wide");
        let field = (u32::from(attempt) << 2) | (verb as u32 + 1);
        self.0 |= field << (slot * BITS);
    }

    pub(crate) fn pop(&mut self) -> Option<Request> {
        let first = self.requests().next();
        self.0 = ((self.0 >> (2 * BITS)) << BITS) | (self.0 & FIELD);
        first
    }

    /// Keeps the requests for which `keep` returns true.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Request) -> bool) {
        let mut kept = Self(self.0 & FIELD);
        for request in self.requests().filter(|request| keep(*request)) {
            kept.push(request.verb, request.attempt);
        }
        *self = kept;
    }

    /// Whether a release is queued: the only verb with both bits set.
    pub(crate) fn has_release(self) -> bool {
        self.0 & (self.0 >> 1) & VERBS != 0
    }

    /// Whether the release of this attempt is queued.
    pub(crate) fn has_release_of(self, attempt: u8) -> bool {
        let is_it = |it: Request| it.verb == Verb::Release && it.attempt == attempt;
        self.requests().any(is_it)
    }

    pub(crate) fn grant(self) -> GrantState {
        match self.0 & FIELD {
            0 => GrantState::None,
            1 => GrantState::Coming,
            _ => GrantState::Received,
        }
    }

    pub(crate) fn set_grant(&mut self, grant: GrantState) {
        self.0 = (self.0 & !FIELD) | grant as u32;
    }
}
