//! Competition with other clients for a lock: which client goes first, and how long a client rests after a lost race.
//!
//! When a lock is released, the nodes send a push to every waiting client. The clients that try to acquire the lock at
//! once are in a race. The winner has its turn, which lasts until it releases the lock.
//!
//! Call [`Contention::handle_rivals`] when other clients compete for the lock, [`Contention::handle_holder`] when an
//! attempt was refused, [`Contention::handle_lost_race`] when another client reacted faster to a push, and
//! [`Contention::handle_win`] when this client has acquired the lock.
//!
//! [`Contention::reaction`] and [`Contention::delay_after_release`] return delays before an attempt.
//! [`Contention::rest_delay`] returns a random pause after a refused attempt. [`Contention::rests_after_refusal`]
//! returns true if the client pauses even after refusals that are not lost races.
//!
//! When nodes refuse an attempt, they report the holder's value, which identifies the client. Each client therefore
//! knows the last turns of the others. A few clients take turns: the longer ago a client's last turn is, the sooner the
//! client reacts to a push. If many clients compete, each client that loses a race rests. The longest rest doubles with
//! each lost race, so that few clients compete for each release.
//!
//! Some lost races do not lengthen the rests. One is a race lost to one of a few known clients. Another is a race lost
//! to the client that already held the lock, because that client has passed the lock on in its own queue. Longer rests
//! would only give the other clients more turns.
//!
//! A client that needs any one of several locks sees one of several holders. Such a holder can be the same for two
//! attempts although the locks were free in between, so a race lost to it can lengthen the rests. If many clients
//! compete, no client delays its reaction, because a lock would then stay free although clients wait.

use super::retry::random_between;
use std::time::Duration;

/// The longest random rest of a client that has lost no race. The longest rest doubles with each lost race. Between two
/// doublings, it grows linearly with [`Contention::lost_score`].
const BASE_REST: Duration = Duration::from_micros(3_500);

/// How much a lost race adds to [`Contention::lost_score`]. A won race subtracts only 1, so a few lucky wins do not
/// make a client compete more aggressively than the others.
const LOST_RACE: u32 = 4;

/// The maximum of [`Contention::lost_score`], which also limits the longest rest.
const MAX_LOST: u32 = 6 * LOST_RACE + 2;

/// The value of [`Contention::lost_score`] from which a client rests after each refused attempt, because many clients
/// compete.
const CROWDED_SCORE: u32 = 4 * LOST_RACE;

/// How much is subtracted from [`Contention::lost_score`] if a refused attempt was blocked by a known client.
const KNOWN_HOLDER: u32 = LOST_RACE / 2;

/// The number of other clients' turns that a client remembers. A turn is a period in which one client holds the lock.
const TURNS: usize = 16;

/// The maximum number of other clients with which a client takes turns. If more clients compete, their order is left to
/// chance.
const MAX_ORDERED_RIVALS: usize = 8;

/// The difference in delay between one client and the next client in the order of turns. It equals the precision of a
/// timer, and is longer than the time between the pushes to two clients.
const STEP: Duration = Duration::from_millis(1);

/// A random number that identifies a client in the values of its leases. A forked process keeps its parent's ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientId(pub(crate) u32);

impl ClientId {
    /// Creates an ID from `random`, which must be uniformly distributed.
    pub(crate) fn from_random(random: u64) -> Self {
        Self((random >> u32::BITS) as u32)
    }
}

/// Whether the holder that blocked the last attempt is known from earlier attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Holder {
    /// The holder was not reported, or was not seen before. Also used if more than [`MAX_ORDERED_RIVALS`] other clients
    /// compete, because they do not take turns.
    #[default]
    Unknown,
    /// The holder is one of a few known clients.
    Known,
    /// The holder is the client that also blocked the previous attempt.
    Same,
    /// Readers hold the lock. They share it, so the refused attempt has lost no race.
    Readers,
}

/// This client's knowledge about the other clients that compete for a lock. The client's next acquire of the lock
/// inherits it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contention {
    /// A score that measures how many clients compete. A lost race adds [`LOST_RACE`], a won race subtracts 1, and a
    /// known holder subtracts [`KNOWN_HOLDER`].
    lost_score: u32,
    /// A ring buffer of the other clients that had the most recent turns. If this client needs any one of several locks,
    /// it also contains this client.
    turns: [Option<ClientId>; TURNS],
    /// The index in `turns` at which the next turn is recorded.
    next: usize,
    /// The number of turns of other clients since this client's last turn, or `None` before this client's first turn. If
    /// this client needs any one of several locks, the number of its refused attempts.
    since: Option<usize>,
    /// The client that nodes most recently reported as the holder. Reset to `None` when this client acquires the lock.
    last: Option<ClientId>,
    holder: Holder,
    /// Whether the last refused attempt needed any one of several locks.
    has_several_holders: bool,
}

impl Contention {
    pub(crate) fn handle_rivals(&mut self) {
        self.lost_score = self.lost_score.max(1);
    }

    /// Records that an attempt was refused. `holder` is the client that holds the lock, or `None` if no node reported
    /// it.
    pub(crate) fn handle_holder(&mut self, holder: Option<ClientId>) {
        self.has_several_holders = false;
        self.record_holder(holder);
    }

    /// Records that an attempt was refused because readers hold the lock.
    pub(crate) fn handle_readers(&mut self) {
        (self.has_several_holders, self.holder) = (false, Holder::Readers);
    }

    /// Records that an attempt for any one of several locks was refused. `holder` is one of the clients that hold the
    /// locks, or `None` if no node reported one.
    pub(crate) fn handle_one_of_several_holders(&mut self, holder: Option<ClientId>) {
        self.has_several_holders = true;
        self.record_holder(holder);
    }

    fn record_holder(&mut self, holder: Option<ClientId>) {
        self.holder = Holder::Unknown;
        let Some(client) = holder else { return };
        let is_few = self.rivals() <= MAX_ORDERED_RIVALS;
        let is_same = self.last.replace(client) == Some(client);
        if is_same && !self.has_several_holders {
            self.holder = Holder::Same;
        } else if is_few && self.turns.contains(&holder) {
            self.holder = Holder::Known;
        }
        if is_few && self.holder != Holder::Unknown {
            self.lost_score = self.lost_score.saturating_sub(KNOWN_HOLDER).max(1);
        }
        if !is_same {
            self.turns[self.next] = holder;
            self.next = (self.next + 1) % TURNS;
        }
        // One of several holders can stay the same although other clients have had turns.
        if !is_same || self.has_several_holders {
            self.since = self.since.map(|since| since + 1);
        }
    }

    /// Records that this client has lost a race to the holder that blocked its last attempt. Returns true if the lost
    /// race lengthens the rests. It does not if the holder is known from earlier attempts.
    pub(crate) fn handle_lost_race(&mut self) -> bool {
        let counts = self.holder == Holder::Unknown;
        if counts {
            self.lost_score = MAX_LOST.min(self.lost_score + LOST_RACE);
        }
        counts
    }

    pub(crate) fn handle_win(&mut self) {
        self.lost_score = self.lost_score.saturating_sub(1);
        (self.since, self.last) = (Some(0), None);
    }

    pub(crate) fn has_rivals(&self) -> bool {
        self.lost_score > 0
    }

    /// Returns true if many clients compete and the holder of the lock has changed. The client then rests even if a
    /// refused attempt was not a lost race, provided that the attempt followed a push or the client's own turn.
    pub(crate) fn rests_after_refusal(&self) -> bool {
        let is_unchanged = matches!(self.holder, Holder::Same | Holder::Readers);
        self.lost_score >= CROWDED_SCORE && !is_unchanged
    }

    /// Returns how long this client waits after a push before it tries to acquire the lock. The longer ago its last
    /// turn is, the shorter the delay.
    pub(crate) fn reaction(&self) -> Duration {
        let (rivals, since) = (self.rivals(), self.since.unwrap_or(usize::MAX));
        if self.has_several_holders && rivals > MAX_ORDERED_RIVALS {
            return Duration::ZERO;
        }
        steps(rivals.min(MAX_ORDERED_RIVALS).saturating_sub(since))
    }

    /// Returns how long this client waits after its own release before it tries again, so that other clients go first.
    /// Other clients receive the push later than this client receives the reply. Timers also delay their reaction by up
    /// to a timer's precision.
    pub(crate) fn delay_after_release(&self) -> Duration {
        let others = self.rivals().clamp(1, MAX_ORDERED_RIVALS) - 1;
        steps(1 + 2 * others)
    }

    /// Returns a random time for which this client does not compete. `random` must be uniformly distributed.
    pub(crate) fn rest_delay(&self, random: u64) -> Duration {
        let quarters = (LOST_RACE + self.lost_score % LOST_RACE) << (self.lost_score / LOST_RACE);
        let longest = BASE_REST / LOST_RACE * quarters;
        random_between(Duration::ZERO, longest, random)
    }

    /// Returns the number of distinct clients in `turns`.
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

    /// Returns the longest time for which a client may ignore pushes after a lost race, in microseconds.
    fn longest_rest(contention: &Contention) -> u128 {
        contention.rest_delay(u64::MAX).as_nanos().div_ceil(1_000)
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
            assert_eq!(contention.rests_after_refusal(), races >= 4);
            assert_eq!(contention.rest_delay(0), Duration::ZERO);
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
        assert!(contention.rests_after_refusal());
        contention.handle_holder(Some(ClientId(19)));
        assert!(!contention.handle_lost_race() && !contention.rests_after_refusal());
        assert_eq!(longest_rest(&contention), longest);
        contention.handle_win();
        contention.handle_holder(Some(ClientId(19)));
        assert!(contention.handle_lost_race(), "a new turn of that client");
    }

    #[test]
    fn refusal_because_of_readers_is_no_lost_race() {
        let mut contention = after_lost_races(20);
        let longest = longest_rest(&contention);
        contention.handle_readers();
        assert!(!contention.handle_lost_race() && !contention.rests_after_refusal());
        assert_eq!(longest_rest(&contention), longest);
    }

    #[test]
    fn race_lost_to_one_of_several_unchanged_holders_counts() {
        let mut contention = after_lost_races(20);
        contention.handle_one_of_several_holders(Some(ClientId(19)));
        assert!(contention.handle_lost_race() && contention.rests_after_refusal());
        for number in [0, 1, 0, 1].into_iter().cycle().take(TURNS + 8) {
            contention.handle_one_of_several_holders(Some(ClientId(number)));
        }
        contention.handle_one_of_several_holders(Some(ClientId(1)));
        assert!(!contention.handle_lost_race(), "one of a few known clients");
    }

    #[test]
    fn reaction_is_delayed_only_if_few_clients_hold_several_locks() {
        for (rivals, expected) in [(4, 3 * STEP), (8, 7 * STEP), (9, Duration::ZERO)] {
            let mut contention = Contention::default();
            (0..rivals).for_each(|number| contention.handle_holder(Some(ClientId(number))));
            contention.handle_win();
            contention.handle_one_of_several_holders(Some(ClientId(0)));
            assert_eq!(contention.reaction(), expected, "{rivals} rivals");
        }
    }

    #[test]
    fn races_lost_to_few_known_clients_shorten_the_rest() {
        let mut contention = after_lost_races(8);
        for number in (0..8).cycle().take(20) {
            contention.handle_holder(Some(ClientId(number)));
            assert!(!contention.handle_lost_race());
        }
        assert!(!contention.rests_after_refusal() && contention.has_rivals());
        assert!(longest_rest(&contention) < 7_000);
        contention.handle_holder(None);
        assert!(contention.handle_lost_race(), "a holder that no node reports");
        contention.handle_holder(Some(ClientId(8)));
        assert!(contention.handle_lost_race(), "the ninth client");
        contention.handle_holder(Some(ClientId(0)));
        assert!(contention.handle_lost_race(), "there are more than eight");
    }

    /// Checks that two to nine clients end up taking turns in a fixed order. In the simulation, the client with the
    /// shortest delay gets the turn. If several clients have the same delay, the turn is random.
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
                        Some(last) if last == place => clients[*place].delay_after_release(),
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
            assert_eq!(contention.delay_after_release() > STEP, turn > 0, "turn {turn}");
            contention.handle_holder(Some(ClientId(1)));
        }
        contention.handle_win();
        assert_eq!((contention.delay_after_release(), contention.reaction()), (STEP, STEP));
        contention.handle_holder(Some(ClientId(1)));
        assert_eq!(contention.reaction(), Duration::ZERO);
    }

    #[test]
    fn client_that_had_no_turn_reacts_at_once() {
        assert_eq!(after_lost_races(20).reaction(), Duration::ZERO);
    }
}
