//! The messages between one client and one node, packed into one word.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// `SET` with `NX` and `PX`.
    Set,
    /// Resets the key's expiry to the full ttl if the value matches.
    Extend,
    /// Deletes the key if the value matches.
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) verb: Verb,
    /// The attempt that chose the request's value. Every attempt has a fresh value (I7).
    pub(crate) attempt: u8,
}

/// The grant of one node in the client's current round.
///
/// The model has no refusals, because they enable no further behaviour: a client may abandon an
/// attempt at any time anyway, and a lost refusal has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantState {
    None,
    /// The grant is in transit to the client.
    InFlight,
    Received,
}

const BITS: u32 = 4;
const FIELD: u32 = (1 << BITS) - 1;
const SLOTS: u32 = 7;
/// A mask with the lowest bit of each request's verb.
const VERBS: u32 = 0x1111_1110;

/// A queue of requests in the upper seven fields, and the state of the grant in the lowest field.
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

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Request) -> bool) {
        let mut kept = Self(self.0 & FIELD);
        for request in self.requests().filter(|request| keep(*request)) {
            kept.push(request.verb, request.attempt);
        }
        *self = kept;
    }

    /// Returns true if a release is queued. `Release` is the only verb with both bits set.
    pub(crate) fn has_release(self) -> bool {
        self.0 & (self.0 >> 1) & VERBS != 0
    }

    pub(crate) fn has_release_of(self, attempt: u8) -> bool {
        let is_it = |it: Request| it.verb == Verb::Release && it.attempt == attempt;
        self.requests().any(is_it)
    }

    pub(crate) fn grant(self) -> GrantState {
        match self.0 & FIELD {
            0 => GrantState::None,
            1 => GrantState::InFlight,
            _ => GrantState::Received,
        }
    }

    pub(crate) fn set_grant(&mut self, grant: GrantState) {
        self.0 = (self.0 & !FIELD) | grant as u32;
    }
}
