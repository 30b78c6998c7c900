//! Checks that fencing tokens increase and that the fenced cells refuse stale writes.
//!
//! One acquire is *later* than another if it began after the other had returned. All processes
//! share the clock. The tokens of concurrent acquires must differ but may have any order.

use crate::check::{self, Pauses};
use crate::record::{Breach, BreachKind, End, Fault, Fencing, Hold, WIPE};
use crate::store::{Write, Writer};
use std::collections::HashMap;
use std::mem;

/// Checks the fenced holds and writes of one part of a run.
pub(crate) struct Fence<'a> {
    holds: Vec<Vec<&'a Hold>>,
    /// For each resource, the writes in the order in which its cell received them.
    writes: Vec<Vec<Write>>,
    faults: &'a [Fault],
    /// The intervals in which nodes may have lost counters.
    losses: &'a [(u64, u64)],
}

pub(crate) struct FenceReport {
    pub(crate) fencing: Fencing,
    pub(crate) breaches: Vec<Breach>,
    /// Descriptions of writes whose hold was not recorded.
    pub(crate) unmatched: Vec<String>,
}

type WriteWithTenure<'a> = (Write, &'a Hold);

impl<'a> Fence<'a> {
    pub(crate) fn new(
        holds: &'a [Hold],
        writes: Vec<Vec<Write>>,
        faults: &'a [Fault],
        losses: &'a [(u64, u64)],
    ) -> Self {
        let mut by_resource = vec![Vec::new(); writes.len()];
        // A reader has no token if it has found none.
        for hold in holds.iter().filter(|hold| hold.token.is_some() || hold.is_read()) {
            by_resource[usize::from(hold.resource)].push(hold);
        }
        Self { holds: by_resource, writes, faults, losses }
    }

    /// Runs all checks. Outside the guarantee, another client may acquire the lock of a valid
    /// lease, so the refused write of a holder is no violation there.
    pub(crate) fn examine(&self, is_inside: bool, pauses: &Pauses) -> FenceReport {
        let mut found = FenceReport {
            fencing: Fencing::default(),
            breaches: Vec::new(),
            unmatched: Vec::new(),
        };
        for (holds, writes) in self.holds.iter().zip(&self.writes) {
            self.tokens(holds, &mut found);
            let writes = pair_with_tenures(holds, writes, &mut found.unmatched);
            self.accepted(&writes, &mut found);
            self.refused(&writes, &mut found);
        }
        let holds = self.holds.iter().flatten();
        let ended = holds.filter(|hold| hold.end != End::Released);
        let ended_in_pause = ended.filter(|hold| pauses.is_in(hold.client, hold.until));
        found.fencing.slept_through = ended_in_pause.count() as u64;
        let is_excused = |breach: &Breach| {
            let is_wiped = breach.under.iter().any(|nemesis| nemesis == WIPE);
            is_wiped || (breach.kind == BreachKind::HolderRefused && !is_inside)
        };
        let all = mem::take(&mut found.breaches);
        (found.fencing.excused, found.breaches) = all.into_iter().partition(is_excused);
        found
    }

    /// Checks that a later acquire has a higher token, and that all tokens differ. A reader can have
    /// the token of another holder, but must not have a lower token than an earlier writer. This is
    /// not checked if a node has lost its counters after the writer's acquire.
    fn tokens(&self, holds: &[&'a Hold], found: &mut FenceReport) {
        found.fencing.tokens += holds.iter().filter(|hold| hold.token.is_some()).count() as u64;
        let writers: Vec<_> = holds.iter().copied().filter(|hold| !hold.is_read()).collect();
        let (mut begun, mut returned) = (holds.to_vec(), writers.clone());
        begun.sort_by_key(|hold| hold.asked);
        returned.sort_by_key(|hold| hold.from);
        let mut returned = returned.into_iter().peekable();
        let mut highest: Option<&Hold> = None;
        for later in begun {
            while let Some(earlier) = returned.next_if(|hold| hold.from < later.asked) {
                highest = highest.max_by_token(earlier);
            }
            found.fencing.ordered += u64::from(highest.is_some());
            let is_higher = |earlier: &&Hold| earlier.token > later.token;
            if let Some(earlier) = highest.filter(is_higher)
                && !(later.is_read() && self.is_lost(earlier.asked, later.from))
            {
                found.breaches.push(self.breach(BreachKind::LowerToken, earlier, later));
            }
        }
        let mut by_token = writers;
        by_token.sort_by_key(|hold| (hold.token, hold.from));
        for pair in by_token.windows(2).filter(|pair| pair[0].token == pair[1].token) {
            found.breaches.push(self.breach(BreachKind::EqualTokens, pair[0], pair[1]));
        }
    }

    fn is_lost(&self, from: u64, until: u64) -> bool {
        self.losses.iter().any(|(begin, end)| *begin <= until && *end >= from)
    }

    /// Checks that a cell accepted no write of an earlier holder after a write of a later holder.
    fn accepted(&self, writes: &[WriteWithTenure<'a>], found: &mut FenceReport) {
        let mut latest: Option<&Hold> = None;
        for (_, holder) in writes.iter().filter(|(write, _)| write.is_accepted) {
            found.fencing.accepted += 1;
            if let Some(later) = latest.filter(|later| later.asked > holder.from) {
                found.breaches.push(self.breach(BreachKind::StaleWrite, holder, later));
            }
            if latest.is_none_or(|latest| latest.asked < holder.asked) {
                latest = Some(holder);
            }
        }
    }

    /// Checks that no cell refused a write whose lease was valid.
    fn refused(&self, writes: &[WriteWithTenure<'a>], found: &mut FenceReport) {
        let mut highest: Option<&Hold> = None;
        for (write, holder) in writes {
            found.fencing.late += u64::from(!write.is_valid);
            if write.is_accepted {
                highest = highest.max_by_token(holder);
                continue;
            }
            found.fencing.refused += 1;
            if write.is_valid {
                // A cell that refuses its first write is defective. The writer is then the only
                // holder to report.
                let by = highest.unwrap_or(holder);
                found.breaches.push(self.breach(BreachKind::HolderRefused, holder, by));
            }
        }
    }

    fn breach(&self, kind: BreachKind, one: &Hold, other: &Hold) -> Breach {
        let (first, second) = if one.from <= other.from { (one, other) } else { (other, one) };
        let under = check::active_faults(self.faults, first.asked, second.from);
        Breach { kind, first: first.clone(), second: second.clone(), under }
    }
}

/// Pairs each write with the hold of its writer. If the hold was not recorded, adds a description
/// of the write to `unmatched`.
fn pair_with_tenures<'a>(
    holds: &[&'a Hold],
    writes: &[Write],
    unmatched: &mut Vec<String>,
) -> Vec<WriteWithTenure<'a>> {
    let own = |hold: &&'a Hold| (Writer { client: hold.client, id: hold.id }, *hold);
    let by_writer: HashMap<_, _> = holds.iter().map(own).collect();
    let mut pairs = Vec::with_capacity(writes.len());
    for write in writes {
        match by_writer.get(&write.writer) {
            Some(hold) => pairs.push((*write, *hold)),
            None => unmatched.push(format!("a write of an unrecorded tenure: {write:?}")),
        }
    }
    pairs
}

trait MaxByToken<'a> {
    fn max_by_token(self, other: &'a Hold) -> Self;
}

impl<'a> MaxByToken<'a> for Option<&'a Hold> {
    fn max_by_token(self, other: &'a Hold) -> Self {
        self.filter(|hold| hold.token >= other.token).or(Some(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use BreachKind::{EqualTokens, HolderRefused, LowerToken, StaleWrite};

    /// `asked` and `from` are the times at which the acquire began and returned.
    fn hold(id: u64, asked: u64, from: u64, token: u64) -> Hold {
        let (token, end) = (Some(token), End::ValidUntil);
        Hold { id, token, asked, end, ..Hold::released(0, from, from + 100) }
    }

    fn write(id: u64, is_accepted: bool, is_valid: bool) -> Write {
        Write { writer: Writer { client: 0, id }, is_accepted, is_valid }
    }

    fn accepted(id: u64) -> Write {
        write(id, true, true)
    }

    fn examined(holds: &[Hold], writes: &[Write]) -> FenceReport {
        Fence::new(holds, vec![writes.to_vec()], &[], &[]).examine(true, &Pauses::default())
    }

    fn breaches(holds: &[Hold], writes: &[Write]) -> Vec<(BreachKind, u64, u64)> {
        let found = examined(holds, writes).breaches;
        found.iter().map(|breach| (breach.kind, breach.first.id, breach.second.id)).collect()
    }

    #[test]
    fn ordered_tokens_and_refused_late_writes_are_no_breach() {
        let holds = [hold(1, 0, 10, 5), hold(2, 20, 30, 6), hold(3, 40, 50, 9)];
        let writes = [
            accepted(1),
            accepted(1),
            accepted(2),
            write(1, false, false),
            accepted(2),
            accepted(3),
            accepted(3),
        ];
        let found = examined(&holds, &writes);
        assert!(found.breaches.is_empty() && found.unmatched.is_empty(), "{:?}", found.breaches);
        let Fencing { tokens, ordered, accepted, refused, late, .. } = found.fencing;
        assert_eq!((tokens, ordered, accepted, refused, late), (3, 2, 6, 1, 1));
    }

    #[test]
    fn write_accepted_after_later_holder_is_stale() {
        let holds = [hold(1, 0, 10, 5), hold(2, 20, 30, 6)];
        assert_eq!(
            breaches(&holds, &[accepted(1), accepted(2), accepted(1)]),
            [(StaleWrite, 1, 2)]
        );
        let late = write(1, true, false);
        assert_eq!(breaches(&holds, &[accepted(2), late, late]), [(StaleWrite, 1, 2); 2], "each");
        let holds = [holds[0].clone(), hold(2, 20, 30, 6), hold(3, 25, 35, 7)];
        let writes = [accepted(3), accepted(2), accepted(1)];
        assert_eq!(breaches(&holds, &writes), [(StaleWrite, 1, 3)], "2 and 3 are not ordered");
    }

    #[test]
    fn late_write_before_a_later_holder_writes_is_not_stale() {
        let holds = [hold(1, 0, 10, 5), hold(2, 20, 30, 6)];
        let found = examined(&holds, &[accepted(1), write(1, true, false), accepted(2)]);
        assert_eq!((found.breaches.len(), found.fencing.late), (0, 1));
    }

    #[test]
    fn lower_token_of_a_later_acquire_is_a_breach() {
        let holds = [hold(1, 0, 10, 9), hold(2, 20, 30, 7)];
        assert_eq!(breaches(&holds, &[]), [(LowerToken, 1, 2)]);
        let holds = [hold(1, 0, 10, 9), hold(2, 20, 30, 7), hold(3, 40, 50, 8)];
        assert_eq!(breaches(&holds, &[]), [(LowerToken, 1, 2), (LowerToken, 1, 3)]);
        assert_eq!(breaches(&[holds[2].clone(), holds[0].clone()], &[]), [(LowerToken, 1, 3)]);
    }

    #[test]
    fn concurrent_acquires_may_have_tokens_in_any_order() {
        // The second acquire begins before the first one returns, or at the same time.
        for asked in [5, 10] {
            let holds = [hold(1, 0, 10, 9), hold(2, asked, 30, 7)];
            assert!(
                breaches(&holds, &[accepted(2), accepted(1), accepted(2), accepted(1)]).is_empty()
            );
        }
        assert_eq!(breaches(&[hold(1, 0, 10, 9), hold(2, 11, 30, 7)], &[]), [(LowerToken, 1, 2)]);
    }

    #[test]
    fn reader_has_at_least_the_token_of_earlier_writers() {
        let reader = |id, asked, token| Hold {
            shared_from: Some(asked),
            token,
            ..hold(id, asked, asked + 10, 0)
        };
        let writer = hold(1, 0, 10, 5);
        let with = |token| [writer.clone(), reader(2, 20, token), reader(3, 20, token)];
        assert!(breaches(&with(Some(5)), &[]).is_empty(), "the same token");
        for low in [Some(4), None] {
            let holds = with(low);
            assert_eq!(breaches(&holds, &[]), [(LowerToken, 1, 2), (LowerToken, 1, 3)]);
            let of_loss = |losses| {
                let fence = Fence::new(&holds, vec![Vec::new()], &[], losses);
                fence.examine(true, &Pauses::default()).breaches.len()
            };
            assert_eq!([of_loss(&[(15, 16)]), of_loss(&[(31, 32)])], [0, 2]);
        }
        assert!(breaches(&[reader(1, 0, None), reader(2, 20, None)], &[]).is_empty());
        let later = [reader(1, 0, Some(9)), hold(2, 20, 30, 7)];
        assert!(breaches(&later, &[]).is_empty(), "no order from a reader to a later writer");
    }

    #[test]
    fn equal_tokens_of_concurrent_acquires_are_a_breach() {
        let holds = [hold(1, 0, 10, 5), hold(2, 5, 20, 5), hold(3, 40, 50, 5)];
        assert_eq!(breaches(&holds, &[]), [(EqualTokens, 1, 2), (EqualTokens, 2, 3)]);
        let mut elsewhere = hold(2, 20, 30, 5);
        elsewhere.resource = 1;
        let holds = [hold(1, 0, 10, 5), elsewhere];
        let fence = Fence::new(&holds, vec![Vec::new(); 2], &[], &[]);
        assert!(
            fence.examine(true, &Pauses::default()).breaches.is_empty(),
            "tokens of different resources"
        );
    }

    #[test]
    fn refused_holder_is_a_breach_within_the_guarantee() {
        let holds = [hold(1, 0, 10, 5), hold(2, 20, 30, 6)];
        let writes = [vec![accepted(2), write(1, false, true)]];
        assert_eq!(breaches(&holds, &writes[0]), [(HolderRefused, 1, 2)]);
        let fence = Fence::new(&holds, writes.to_vec(), &[], &[]);
        let outside = fence.examine(false, &Pauses::default());
        assert_eq!((outside.breaches.len(), outside.fencing.excused.len()), (0, 1));
        assert_eq!(breaches(&holds, &[write(1, false, true)]), [(HolderRefused, 1, 1)]);
    }

    #[test]
    fn only_a_wipe_between_both_tenures_excuses_a_breach() {
        let holds = [hold(1, 0, 10, 9), hold(2, 20, 30, 7)];
        let wipe = |nemesis: &str, at| Fault {
            nemesis: nemesis.to_owned(),
            target: "all nodes".to_owned(),
            from: at,
            until: at,
            is_guaranteed: false,
        };
        for (fault, excused) in
            [(wipe(WIPE, 15), 1), (wipe(WIPE, 31), 0), (wipe("FLUSHALL", 15), 0)]
        {
            let faults = [fault];
            let found = Fence::new(&holds, vec![Vec::new()], &faults, &[])
                .examine(false, &Pauses::default());
            let (all, not) = (found.fencing.excused.len(), found.breaches.len());
            assert_eq!((all, all + not), (excused, 1), "{:?}", faults[0]);
        }
    }

    #[test]
    fn write_of_an_unrecorded_tenure_is_reported() {
        assert_eq!(examined(&[hold(1, 0, 10, 5)], &[accepted(2)]).unmatched.len(), 1);
    }

    #[test]
    fn tenure_that_ends_while_its_client_is_stopped_is_counted() {
        let mut holds = [hold(1, 0, 10, 5), hold(2, 120, 130, 6), hold(3, 140, 150, 7)];
        (holds[1].until, holds[1].end) = (150, End::Released);
        let mut pauses = Pauses::default();
        pauses.record(0, 100, 200);
        pauses.record(1, 240, 260);
        let found = Fence::new(&holds, vec![Vec::new()], &[], &[]).examine(true, &pauses);
        assert_eq!(found.fencing.slept_through, 1, "only the first tenure");
    }
}
