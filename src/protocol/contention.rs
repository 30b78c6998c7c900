//! Competition with other clients for a lock: which client goes first, and how long a client rests after a lost race.
//!
//! - Events: [`Contention::handle_rivals`] when other clients compete for the lock. [`Contention::handle_holder`] when
//!   an attempt was refused. [`Contention::handle_lost_race`] when another client reacted faster to a push.
//!   [`Contention::handle_win`] when this client has acquired the lock.
//! - Queries: [`Contention::reaction`] and [`Contention::hold_back`] return delays before an attempt.
//!   [`Contention::rest`] returns a random pause after a refused attempt. [`Contention::rests`] returns true if the
//!   client rests after every refused attempt.
//!
//! When nodes refuse an attempt, they report the holder's value, which identifies the client. Each client therefore
//! knows the last turns of the others. A few clients take turns: the longer ago a client's last turn is, the sooner the
//! client reacts to a push. If many clients compete, each client that loses a race rests. The longest rest doubles with
//! each lost race, so that few clients compete for each release.
//!
//! A race lost to one of a few known clients does not count. A race lost to the client that already held the lock does
//! not count either: that client has passed the lock on in its own queue. Longer rests would only give the other
//! clients more turns.

use super::retry::random_between;
use std::time::Duration;

/// The longest rest of a client that has lost no race. The longest rest doubles with each lost race, and grows linearly
/// in between.
const BASE_REST: Duration = Duration::from_micros(3_500);

/// The number that a lost race adds to [`Contention::lost`]. A won race subtracts 1, so that clients that win by chance
/// do not soon compete more often than other clients.
const LOST_RACE: u32 = 4;

/// The upper limit of [`Contention::lost`], which also limits the longest rest.
const MAX_LOST: u32 = 6 * LOST_RACE + 2;

/// The value of [`Contention::lost`] from which a client rests after each refused attempt.
const CROWD: u32 = 4 * LOST_RACE;

/// The number that a known holder subtracts from [`Contention::lost`].
const KNOWN_HOLDER: u32 = LOST_RACE / 2;

/// The number of other clients' turns that a client remembers.
const TURNS: usize = 16;

/// The maximum number of other clients with which a client takes turns in the order of their last turns.
const FEW: usize = 8;

/// The difference between the reaction delays of two adjacent clients in the order. The difference equals the precision
/// of a timer, and is longer than the time between the pushes to two clients.
const STEP: Duration = Duration::from_millis(1);

/// A random number that identifies a client in the values of its leases. A forked process keeps its parent's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientId(pub(crate) u32);

impl ClientId {
    /// Creates an ID from `random`, which must be uniformly distributed.
    pub(crate) fn from_random(random: u64) -> Self {
        Self((random >> u32::BITS) as u32)
    }
}

/// The holder that blocked an attempt, compared with earlier holders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Holder {
    /// The holder was not reported, was not seen before, or is one of many clients.
    #[default]
    Unknown,
    /// The holder is one of a few known clients.
    Known,
    /// The holder is the client that also blocked the previous attempt.
    Same,
}

/// A client's knowledge about other clients that compete for a lock. The client's next acquire inherits it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contention {
    /// Lost races, each counted as [`LOST_RACE`], minus won races and known holders.
    lost: u32,
    /// The holders of the last turns of other clients.
    turns: [Option<ClientId>; TURNS],
    /// The index in `turns` at which the next turn is recorded.
    next: usize,
    /// The number of turns of other clients since this client's last turn. `None` before this client's first turn.
    since: Option<usize>,
    /// The client that blocked the last attempt, if that attempt was made after this client's last turn.
    last: Option<ClientId>,
    holder: Holder,
}

impl Contention {
    pub(crate) fn handle_rivals(&mut self) {
        self.lost = self.lost.max(1);
    }

    /// Records that an attempt was refused. `holder` is the client that holds the lock, if the nodes report one.
    pub(crate) fn handle_holder(&mut self, holder: Option<ClientId>) {
        self.holder = Holder::Unknown;
        let Some(client) = holder else { return };
        let is_few = self.rivals() <= FEW;
        let is_same = self.last.replace(client) == Some(client);
        if is_same {
            self.holder = Holder::Same;
        } else if is_few && self.turns.contains(&holder) {
            self.holder = Holder::Known;
        }
        if is_few && self.holder != Holder::Unknown {
            self.lost = self.lost.saturating_sub(KNOWN_HOLDER).max(1);
        }
        if !is_same {
            self.turns[self.next] = holder;
            self.next = (self.next + 1) % TURNS;
            self.since = self.since.map(|since| since + 1);
        }
    }

    /// Records that the client that blocked the last attempt has won a race against this client. Returns true if the
    /// lost race counts.
    pub(crate) fn handle_lost_race(&mut self) -> bool {
        let counts = self.holder == Holder::Unknown;
        if counts {
            self.lost = MAX_LOST.min(self.lost + LOST_RACE);
        }
        counts
    }

    pub(crate) fn handle_win(&mut self) {
        self.lost = self.lost.saturating_sub(1);
        (self.since, self.last) = (Some(0), None);
    }

    pub(crate) fn has_rivals(&self) -> bool {
        self.lost > 0
    }

    /// Returns true if the client rests after each refused attempt that followed a push or its own turn. The client
    /// rests if many clients compete and the holder of the lock has changed.
    pub(crate) fn rests(&self) -> bool {
        self.lost >= CROWD && self.holder != Holder::Same
    }

    /// Returns the client's delay after a push, which favours clients whose last turn is longer ago.
    pub(crate) fn reaction(&self) -> Duration {
        let since = self.since.unwrap_or(usize::MAX);
        steps(self.rivals().min(FEW).saturating_sub(since))
    }

    /// Returns the client's delay after its own release, so that other clients go first. Other clients receive the push
    /// later than this client receives the reply. Their reaction is delayed by up to a timer's precision.
    pub(crate) fn hold_back(&self) -> Duration {
        let others = self.rivals().clamp(1, FEW) - 1;
        steps(1 + 2 * others)
    }

    /// Returns a random time until the client competes again. `random` must be uniformly distributed.
    pub(crate) fn rest(&self, random: u64) -> Duration {
        let quarters = (LOST_RACE + self.lost % LOST_RACE) << (self.lost / LOST_RACE);
        let longest = BASE_REST / LOST_RACE * quarters;
        random_between(Duration::ZERO, longest, random)
    }

    /// Returns the number of other clients that held the lock in the last turns.
    fn rivals(&self) -> usize {
        let is_first = |place: usize| !self.turns[..place].contains(&self.turns[place]);
        (0..TURNS).filter(|place| self.turns[*place].is_some() && is_first(*place)).count()
    }
}

fn steps(count: usize) -> Duration {
    u32::try_from(count).map_or(Duration::MAX, |count| STEP * count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the longest rest in microseconds.
    fn longest_rest(contention: &Contention) -> u128 {
        contention.rest(u64::MAX).as_nanos().div_ceil(1_000)
    }

    /// Returns the state of a client that has lost `races` races, each to a different client.
    fn after_lost_races(races: u32) -> Contention {
        let mut contention = Contention::default();
        for race in 0..races {
            contention.handle_holder(Some(ClientId(race)));
            assert!(contention.handle_lost_race());
        }
        contention
    }

    #[test]
    fn longest_rest_doubles_with_each_lost_race() {
        for races in 0..7 {
            let contention = after_lost_races(races);
            assert_eq!(longest_rest(&contention), 3_500 << races, "after {races}");
            assert_eq!(contention.rests(), races >= 4);
            assert_eq!(contention.rest(0), Duration::ZERO);
        }
        assert_eq!(longest_rest(&after_lost_races(100)), 336_000);
    }

    #[test]
    fn won_race_takes_away_a_quarter_of_a_lost_one() {
        let mut contention = after_lost_races(2);
        for longest in [12_250, 10_500, 8_750, 7_000, 6_125] {
            contention.handle_win();
            assert_eq!(longest_rest(&contention), longest);
        }
    }

    #[test]
    fn race_lost_to_unchanged_holder_does_not_count() {
        let mut contention = after_lost_races(20);
        let longest = longest_rest(&contention);
        assert!(contention.rests());
        contention.handle_holder(Some(ClientId(19)));
        assert!(!contention.handle_lost_race() && !contention.rests());
        assert_eq!(longest_rest(&contention), longest);
        contention.handle_win();
        contention.handle_holder(Some(ClientId(19)));
        assert!(contention.handle_lost_race(), "a new turn of that client");
    }

    #[test]
    fn races_lost_to_few_known_clients_shorten_the_rest() {
        let mut contention = after_lost_races(8);
        for number in (0..8).cycle().take(20) {
            contention.handle_holder(Some(ClientId(number)));
            assert!(!contention.handle_lost_race());
        }
        assert!(!contention.rests() && contention.has_rivals());
        assert!(longest_rest(&contention) < 7_000);
        contention.handle_holder(None);
        assert!(contention.handle_lost_race(), "a holder that no node reports");
        contention.handle_holder(Some(ClientId(8)));
        assert!(contention.handle_lost_race(), "the ninth client");
        contention.handle_holder(Some(ClientId(0)));
        assert!(contention.handle_lost_race(), "there are more than eight");
    }

    /// The client that reacts first gets the turn. If several clients react at the same time, the turn is random.
    #[test]
    fn few_clients_take_turns_in_the_order_of_their_last_turns() {
        let mut random = 1_u64;
        for count in 2..=9 {
            let mut clients = vec![Contention::default(); count];
            let mut turns = Vec::new();
            for _ in 0..20 * count {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let delay = |place: &usize| {
                    let delay = match turns.last() {
                        Some(last) if last == place => clients[*place].hold_back(),
                        _ => clients[*place].reaction(),
                    };
                    (delay, (random >> (3 * *place)) % 64)
                };
                let holder = (0..count).min_by_key(delay).expect("a client");
                turns.push(holder);
                for (place, contention) in clients.iter_mut().enumerate() {
                    if place == holder {
                        contention.handle_win();
                    } else {
                        let number = u32::try_from(holder).expect("few");
                        contention.handle_holder(Some(ClientId(number)));
                    }
                }
            }
            let last_rounds = &turns[15 * count..];
            for (place, holder) in last_rounds.iter().enumerate().skip(count) {
                assert_eq!(*holder, last_rounds[place - count], "{count} clients: {turns:?}");
            }
            let round: std::collections::HashSet<_> = last_rounds[..count].iter().collect();
            assert_eq!(round.len(), count, "{turns:?}");
        }
    }

    #[test]
    fn client_that_has_left_no_longer_delays_the_others() {
        let mut contention = Contention::default();
        contention.handle_holder(Some(ClientId(0)));
        for turn in 0..TURNS {
            contention.handle_win();
            assert_eq!(contention.hold_back() > STEP, turn > 0, "turn {turn}");
            contention.handle_holder(Some(ClientId(1)));
        }
        contention.handle_win();
        assert_eq!((contention.hold_back(), contention.reaction()), (STEP, STEP));
        contention.handle_holder(Some(ClientId(1)));
        assert_eq!(contention.reaction(), Duration::ZERO);
    }

    #[test]
    fn client_that_had_no_turn_reacts_at_once() {
        assert_eq!(after_lost_races(20).reaction(), Duration::ZERO);
    }
}
