//! Other clients that compete for a lock: which of them goes first, and how long a client rests after a lost race.
//!
//! - Events: [`Contention::handle_rivals`] when other clients compete for the lock. [`Contention::handle_holder`] when an
//!   attempt was refused. [`Contention::handle_lost_race`] when another client reacted faster to a push.
//!   [`Contention::handle_win`] when this client has acquired the lock.
//! - Queries: [`Contention::reaction`] and [`Contention::hold_back`] are delays before an attempt. [`Contention::rest`] is
//!   a random pause after a refused one, and [`Contention::rests`] is true if it follows every refusal.
//!
//! Nodes report the holder of the lock when they refuse an attempt, and its value identifies the client. So each client
//! knows the last turns of the others. If they are few, they take turns: the longer ago a client's last turn is, the
//! sooner it reacts to a push. If they are many, each client that loses a race rests, and the longest rest doubles with
//! each lost race, so that few of them compete for each release.
//!
//! A race that was lost to one of few known clients does not count, nor one that was lost to the client which already
//! held the lock: that client has passed the lock on in its own queue. Longer rests would only give the others more turns.

use super::retry::random_between;
use std::time::Duration;

/// The longest rest of a client that has lost no race. It doubles with each lost race, and grows evenly between.
const BASE_REST: Duration = Duration::from_micros(3_500);

/// A lost race adds this to [`Contention::lost`]. A won race takes away 1, so that clients which win by chance do not
/// soon compete more often than others.
const LOST_RACE: u32 = 4;

/// Upper limit of [`Contention::lost`], and so of the longest rest.
const MAX_LOST: u32 = 6 * LOST_RACE + 2;

/// From this value of [`Contention::lost`] on, a client rests after each refused attempt.
const CROWD: u32 = 4 * LOST_RACE;

/// A holder that is known takes this away from [`Contention::lost`].
const KNOWN_HOLDER: u32 = LOST_RACE / 2;

/// Number of turns of other clients that a client remembers.
const TURNS: usize = 16;

/// Maximum number of other clients with which a client takes turns in an order.
const FEW: usize = 8;

/// How much later a client reacts than the one before it in the order. This is the precision of a timer, and longer than
/// the time between the pushes to two clients.
const STEP: Duration = Duration::from_millis(1);

/// Random number that identifies a client in the values of its leases. A forked process keeps its parent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientId(pub(crate) u32);

impl ClientId {
    /// `random` is uniformly distributed.
    pub(crate) fn from_random(random: u64) -> Self {
        Self((random >> u32::BITS) as u32)
    }
}

/// The holder that refused an attempt, compared with earlier holders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Holder {
    /// The holder was not reported, was not seen before, or is one of many clients.
    #[default]
    Unknown,
    /// One of a few clients.
    Known,
    /// The client that also refused the attempt before.
    Same,
}

/// Knowledge of a client about the others that compete for a lock. Its next acquire inherits it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contention {
    /// Lost races (each adds [`LOST_RACE`]) minus won races and known holders.
    lost: u32,
    /// Holders of the last turns of other clients.
    turns: [Option<ClientId>; TURNS],
    /// Where the next turn is recorded.
    next: usize,
    /// Number of turns of other clients since this client's last turn. `None` before its first.
    since: Option<usize>,
    /// The client that refused the last attempt, if that was after this client's last turn.
    last: Option<ClientId>,
    holder: Holder,
}

impl Contention {
    /// Other clients compete for the lock.
    pub(crate) fn handle_rivals(&mut self) {
        self.lost = self.lost.max(1);
    }

    /// An attempt was refused. `holder` is the client that holds the lock, if the nodes report one.
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

    /// The client that refused the last attempt has won a race against this one. Returns whether it counts.
    pub(crate) fn handle_lost_race(&mut self) -> bool {
        let counts = self.holder == Holder::Unknown;
        if counts {
            self.lost = MAX_LOST.min(self.lost + LOST_RACE);
        }
        counts
    }

    /// This client has acquired the lock.
    pub(crate) fn handle_win(&mut self) {
        self.lost = self.lost.saturating_sub(1);
        (self.since, self.last) = (Some(0), None);
    }

    pub(crate) fn has_rivals(&self) -> bool {
        self.lost > 0
    }

    /// True if the client rests after each refused attempt that followed a push or its own turn: many clients compete, and
    /// another one than before holds the lock.
    pub(crate) fn rests(&self) -> bool {
        self.lost >= CROWD && self.holder != Holder::Same
    }

    /// How long after a push the client reacts to it, so that clients go first which had no turn for longer.
    pub(crate) fn reaction(&self) -> Duration {
        let since = self.since.unwrap_or(usize::MAX);
        steps(self.rivals().min(FEW).saturating_sub(since))
    }

    /// How long after its own release the client tries again, so that the others go first. They receive the push later
    /// than this client receives the reply, and react later by up to a timer's precision.
    pub(crate) fn hold_back(&self) -> Duration {
        let others = self.rivals().clamp(1, FEW) - 1;
        steps(1 + 2 * others)
    }

    /// A random time until the client competes again. `random` is uniformly distributed.
    pub(crate) fn rest(&self, random: u64) -> Duration {
        let quarters = (LOST_RACE + self.lost % LOST_RACE) << (self.lost / LOST_RACE);
        let longest = BASE_REST / LOST_RACE * quarters;
        random_between(Duration::ZERO, longest, random)
    }

    /// Number of other clients that held the lock in the last turns.
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

    /// The longest rest, in microseconds.
    fn longest_rest(contention: &Contention) -> u128 {
        contention.rest(u64::MAX).as_nanos().div_ceil(1_000)
    }

    /// The client has lost this number of races, each to another client.
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

    /// The client that reacts first gets the turn. If several react together, chance decides.
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
