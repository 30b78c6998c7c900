//! Checks the order of a client's commands on each connection: no lock is set or extended after its
//! release, and releases are repeated before new acquires (I8).
//!
//! Commands identify scripts by their hashes, so the checks classify commands by their arguments.
//! Only keys of locks with a number are checked, because no other client deletes the values of these
//! keys by force.

use crate::ledger::{DIGITS, lock_of, unique_part};
use crate::rule::Rule;
use crate::shared::Core;
use std::collections::BTreeSet;

/// The possible values of the second argument of scripts that update fencing counters.
const UPDATES: [&[u8]; 3] = [b"incr", b"touch", b"try"];

/// The suffix of the value that a released lock's key holds during its cool-down.
const COOL_DOWN: &[u8] = b"+cool-down";

#[derive(Debug, PartialEq, Eq)]
enum Effect {
    /// Sets the keys, possibly replacing another value.
    Sets,
    /// Sets or extends the keys.
    Keeps,
    Releases,
}

/// The unique part of a lock's value, and one of the lock's keys.
type Held = (Vec<u8>, Vec<u8>);

/// Tracks the commands that clients send for locks, to detect commands in the wrong order (I8).
#[derive(Default)]
pub(crate) struct Order {
    /// The released values, each with its key and a connection on which the release was sent.
    by_connection: BTreeSet<(usize, Held)>,
    /// The released values, each with its key and a node to which the release was sent.
    by_node: BTreeSet<(usize, Held)>,
    /// The values for which any command was sent, each with its key and a node.
    sent: BTreeSet<(usize, Held)>,
    /// The number of releases that were sent to a node again.
    repeated: u64,
}

impl Order {
    /// Records the complete commands that a client writes, and checks their order. Returns a
    /// description of the first violation, or `None`.
    fn record_written(&mut self, connection: usize, node: usize, bytes: &[u8]) -> Option<String> {
        let mut wrong = None;
        // The value of the first new attempt in this pipeline.
        let mut begun: Option<Vec<u8>> = None;
        for (effect, all) in commands(bytes).filter_map(|command| classify(&command)) {
            let Some((value, _)) = all.first().cloned() else { continue };
            let shown =
                |value: &[u8]| String::from_utf8_lossy(&value[..value.len().min(6)]).into_owned();
            let is_new = all.iter().all(|held| self.sent.insert((node, held.clone())));
            let is_released =
                |held: &Held| self.by_connection.contains(&(connection, held.clone()));
            if effect == Effect::Releases {
                let (mut count, all_count) = (0, all.len());
                for held in all {
                    count += usize::from(!self.by_node.insert((node, held.clone())));
                    self.by_connection.insert((connection, held));
                }
                self.repeated += u64::from(count == all_count);
                if let Some(begun) = begun.as_deref().filter(|_| count == all_count) {
                    let (late, early) = (shown(&value), shown(begun));
                    wrong = Some(format!(
                        "the release of {late} is repeated after the acquire of {early}"
                    ));
                }
            } else if all.iter().any(is_released) {
                wrong = Some(format!("{} is set or extended after its release", shown(&value)));
            } else if effect == Effect::Sets && is_new {
                begun.get_or_insert(value);
            }
        }
        wrong
    }
}

impl Core {
    pub(crate) fn check_order(&mut self, connection: usize, bytes: &[u8]) {
        let node = self.connections[connection].node;
        let repeated = self.order.repeated;
        let wrong = self.order.record_written(connection, node, bytes);
        self.counts.add(Rule::Ordered, self.order.repeated - repeated);
        if let Some(how) = wrong {
            self.findings.push((Rule::Ordered, format!("n{node} #{connection}: {how}")));
        }
    }
}

fn commands(mut bytes: &[u8]) -> impl Iterator<Item = Vec<&[u8]>> {
    std::iter::from_fn(move || {
        let count = length(&mut bytes, b'*')?;
        (0..count).map(|_| argument(&mut bytes)).collect()
    })
}

fn argument<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = length(bytes, b'$')?;
    let (argument, rest) = bytes.split_at_checked(length)?;
    *bytes = rest.strip_prefix(b"\r\n")?;
    Some(argument)
}

/// Reads a line that consists of the type byte `mark` and a number, and removes it from `bytes`.
/// Returns `None` if the line is incomplete or has another type.
fn length(bytes: &mut &[u8], mark: u8) -> Option<usize> {
    let end = memchr::memmem::find(bytes, b"\r\n")?;
    let (line, rest) = bytes.split_at(end);
    *bytes = &rest[2..];
    std::str::from_utf8(line.strip_prefix(&[mark])?).ok()?.parse().ok()
}

/// Returns the effect of a command on a lock, and the unique part of the lock's value with each of
/// the lock's keys. Returns `None` for other commands.
fn classify(command: &[&[u8]]) -> Option<(Effect, Vec<Held>)> {
    let (keys, effect, value) = match command {
        [b"SET", key, value, ..] => (vec![*key], Effect::Sets, value),
        [b"MSETEX", count, pairs @ ..] => {
            let count: usize = std::str::from_utf8(count).ok()?.parse().ok()?;
            let keys = pairs.get(..2 * count)?.iter().step_by(2).copied().collect();
            (keys, Effect::Sets, pairs.get(1)?)
        }
        [b"DELIFEQ", key, value] | [b"DELEX", key, _, value] => {
            (vec![*key], Effect::Releases, value)
        }
        [b"EVAL" | b"EVALSHA", _, count, rest @ ..] => {
            let count = std::str::from_utf8(count).ok()?.parse().ok()?;
            let (keys, arguments) = rest.split_at_checked(count)?;
            let (effect, value) = classify_script(arguments)?;
            (keys.to_vec(), effect, value)
        }
        _ => return None,
    };
    let value = unique_part(value);
    let keys = keys.into_iter().filter(|key| lock_of(key).is_some());
    let held: Vec<_> = keys.map(|key| (value.to_vec(), key.to_vec())).collect();
    (!held.is_empty()).then_some((effect, held))
}

/// Returns the effect of a script and its lock value, as determined by the arguments after the
/// keys.
fn classify_script<'a>(arguments: &'a [&'a [u8]]) -> Option<(Effect, &'a &'a [u8])> {
    match arguments {
        [_, update, _, own @ ..] if UPDATES.contains(update) => classify_script(own),
        [value] => Some((Effect::Releases, value)),
        [value, _ttl] => Some((Effect::Keeps, value)),
        [value, cooling, _ttl] if cooling.ends_with(COOL_DOWN) => Some((Effect::Releases, value)),
        [value, _ttl, b"extend"] => Some((Effect::Keeps, value)),
        // An acquire of any one of several keys, or of a reader. Numbers are shorter than values.
        [value, ttl, _first, ..] if value.len() >= DIGITS && ttl.len() < DIGITS => {
            Some((Effect::Sets, value))
        }
        // Adoption of a value that another client has handed over.
        [_from, value, _ttl] => Some((Effect::Sets, value)),
        [_minimum, _counter_ttl, value, _ttl] => Some((Effect::Sets, value)),
        // A writer of a lock that has readers, without and with a counter.
        [_, _waits, _first, value, _ttl] | [_, _waits, _first, _, _, value, _ttl] => {
            Some((Effect::Sets, value))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "11111111111111111111111111111111";
    const OTHER: &str = "22222222222222222222222222222222";

    fn written(commands: &[&[&str]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for command in commands {
            bytes.extend(format!("*{}\r\n", command.len()).bytes());
            for word in *command {
                bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
            }
        }
        bytes
    }

    fn set(value: &str) -> [&str; 6] {
        ["SET", "r0", value, "NX", "PX", "10"]
    }

    fn release(value: &str) -> [&str; 5] {
        ["EVALSHA", "hash", "1", "r0", value]
    }

    #[test]
    fn commands_are_classified_by_their_arguments() {
        let cooling = format!("{OTHER}+cool-down");
        let cases: [(&[&str], _); 19] = [
            (&set(ONE), Some(Effect::Sets)),
            (&["MSETEX", "2", "r0", ONE, "r1", ONE, "NX", "PX", "9"], Some(Effect::Sets)),
            (&["DELIFEQ", "r0", ONE], Some(Effect::Releases)),
            (&["DELEX", "r0", "IFEQ", ONE], Some(Effect::Releases)),
            (&release(ONE), Some(Effect::Releases)),
            (&["EVAL", "text", "2", "r0", "c0", "0", "try", "9", ONE], Some(Effect::Releases)),
            (&["EVALSHA", "hash", "1", "r0", ONE, &cooling, "9"], Some(Effect::Releases)),
            (&["EVALSHA", "hash", "1", "r0", OTHER, ONE, "9"], Some(Effect::Sets)),
            (&["EVALSHA", "hash", "2", "r0", "c0", "0", "9", ONE, "9"], Some(Effect::Sets)),
            (&["EVALSHA", "hash", "2", "r0", "r1", ONE, "9"], Some(Effect::Keeps)),
            (
                &["EVALSHA", "hash", "2", "r0", "c0", "0", "touch", "9", ONE, "9"],
                Some(Effect::Keeps),
            ),
            (&["EVALSHA", "hash", "2", "r0", "r1", ONE, "9", "2"], Some(Effect::Sets)),
            (&["EVALSHA", "hash", "2", "r0", "c0", ONE, "9", "1", "7", "9"], Some(Effect::Sets)),
            (&["EVALSHA", "hash", "2", "shared", "c0", ONE, "9", "wait"], Some(Effect::Sets)),
            (&["EVALSHA", "hash", "2", "shared", "c0", ONE, "9", "extend"], Some(Effect::Keeps)),
            (&["EVALSHA", "hash", "1", "shared", "9", "1", "20", ONE, "9"], Some(Effect::Sets)),
            (
                &["EVALSHA", "hash", "1", "shared", "9", "1", "20", "5", "9", ONE, "9"],
                Some(Effect::Sets),
            ),
            (&["EVALSHA", "hash", "1", "r0"], None),
            (&["DELIFEQ", "own", ONE], None),
        ];
        for (command, effect) in cases {
            let bytes = written(&[command, &["TIME"]]);
            let found = commands(&bytes).filter_map(|it| classify(&it));
            let found: Vec<_> = found.map(|(effect, held)| (effect, held[0].0.clone())).collect();
            let expected = effect.map(|effect| (effect, ONE.as_bytes().to_vec()));
            assert_eq!(found, Vec::from_iter(expected), "{command:?}");
        }
    }

    #[test]
    fn set_after_its_release_on_a_connection_is_found() {
        let mut order = Order::default();
        assert_eq!(order.record_written(0, 0, &written(&[&set(ONE), &release(ONE)])), None);
        assert_eq!(order.record_written(1, 0, &written(&[&set(ONE)])), None);
        assert!(order.record_written(0, 0, &written(&[&set(ONE)])).is_some());
        let extension = ["EVALSHA", "hash", "1", "r0", ONE, "9"];
        assert!(order.record_written(0, 0, &written(&[&extension])).is_some());
    }

    #[test]
    fn repeated_release_after_new_acquire_is_found() {
        let mut order = Order::default();
        assert_eq!(order.record_written(0, 0, &written(&[&set(ONE), &release(ONE)])), None);
        assert_eq!(order.record_written(1, 0, &written(&[&release(ONE), &set(OTHER)])), None);
        assert_eq!(order.record_written(2, 1, &written(&[&set(OTHER), &release(ONE)])), None);
        let third = "33333333333333333333333333333333";
        assert!(order.record_written(3, 0, &written(&[&set(third), &release(ONE)])).is_some());
    }

    #[test]
    fn release_of_other_keys_does_not_end_a_lock() {
        let mut order = Order::default();
        let others = ["EVALSHA", "hash", "1", "r1", ONE];
        let extension = ["EVALSHA", "hash", "1", "r0", ONE, "9"];
        let pipeline = written(&[&set(ONE), &others, &extension]);
        assert_eq!(order.record_written(0, 0, &pipeline), None);
        let pipeline = written(&[&release(ONE), &extension]);
        assert!(order.record_written(0, 0, &pipeline).is_some());
    }

    #[test]
    fn native_release_of_several_keys_is_no_repetition() {
        let mut order = Order::default();
        let native = [["DELIFEQ", "r0", ONE], ["DELIFEQ", "r1", ONE]];
        let pipeline = written(&[&set(OTHER), &native[0], &native[1]]);
        assert_eq!(order.record_written(0, 0, &pipeline), None);
        assert!(order.record_written(0, 0, &written(&[&release(ONE)])).is_none());
        let third = "33333333333333333333333333333333";
        assert!(order.record_written(0, 0, &written(&[&set(third), &native[0]])).is_some());
    }
}
