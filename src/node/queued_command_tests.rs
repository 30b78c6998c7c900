//! Commands before and after they are written.

use super::*;
use crate::wire::{Keys, NativeDelete, NodeFailure};
use std::time::Duration;

const NOW: Time = Time::from_nanos(5_000_000_000);

fn node() -> NodeId {
    NodeId::new(0)
}

fn claim() -> Arc<Claim> {
    Arc::new(Claim::new(Keys::one(b"k".as_slice().into()), Value::of(b"mine"), 1))
}

const TRACKS: Capabilities = Capabilities { tracks: true, deletes: None };

fn write(command: &mut QueuedCommand, now: Time) -> usize {
    written(command, now, TRACKS).len()
}

fn written(command: &mut QueuedCommand, now: Time, can: Capabilities) -> Requests {
    let mut requests = Requests::default();
    assert!(command.write(node(), now, can, &mut requests));
    requests
}

fn text(requests: &Requests) -> String {
    String::from_utf8(requests.bytes().to_vec()).expect("text")
}

fn reply(wire: &str) -> redis::Value {
    redis::parse_redis_value(wire.as_bytes()).expect("a reply")
}

#[test]
fn unwritten_command_sets_no_key_and_has_no_replies() {
    let mut command = QueuedCommand::repair(claim(), NOW.after(Duration::from_secs(9)));
    assert!(!command.was_written());
    assert_eq!((command.replies(), command.kept_until(Drift::DEFAULT)), (0, None));
    assert_eq!(command.read(&[redis::Value::Okay]), None);
    assert!(!command.fall_back(&[reply("-NOSCRIPT no\r\n")]));
}

#[test]
fn granted_keys_are_kept_from_the_last_write() {
    let (claim, later) = (claim(), NOW.after(Duration::from_secs(4)));
    let until = NOW.after(Duration::from_secs(9));
    let sink = Arc::new(Ignore);
    let mut command = QueuedCommand::extend(claim, until, true, Ballot::new(sink, node()));
    for (now, remaining) in [(NOW, 9), (later, 5)] {
        assert_eq!(write(&mut command, now), command.replies());
        let ttl = Ttl::covering(Duration::from_secs(remaining));
        let kept_until = command.kept_until(Drift::DEFAULT);
        assert_eq!(kept_until, Some(valid_until(now, ttl, Drift::DEFAULT)));
    }
    assert_eq!(command.replies(), 3, "the script and two commands to watch the key");
    assert!(!command.is_plain_acquire());
}

#[test]
fn a_release_is_the_first_until_it_is_written_again() {
    let mut release = QueuedCommand::release(claim(), None);
    assert!(!release.is_first_release(), "not written");
    write(&mut release, NOW);
    assert!(release.is_first_release() && release.was_written());
    write(&mut release, NOW);
    assert!(!release.is_first_release() && release.was_written());
    assert_eq!(release.kept_until(Drift::DEFAULT), None);
}

#[test]
fn repair_does_not_count_as_kept_and_is_not_written_after_a_withdrawal() {
    let until = NOW.after(Duration::from_secs(9));
    let mut repair = QueuedCommand::repair(claim(), until);
    write(&mut repair, NOW);
    assert_eq!((repair.kept_until(Drift::DEFAULT), repair.is_first_release()), (None, false));
    let withdrawn = claim();
    withdrawn.withdraw();
    let mut repair = QueuedCommand::repair(withdrawn, until);
    let mut requests = Requests::default();
    assert!(!repair.write(node(), NOW, TRACKS, &mut requests));
    assert!(requests.len() == 0 && !repair.was_written());
}

#[test]
fn whoever_was_refused_owes_no_release_until_something_is_written_again() {
    let (ttl, sink) = (Ttl::SHORTEST, || Ballot::new(Arc::new(Ignore), node()));
    let denied = Answer::Denied(Conflict::default());
    let claim = claim();
    let is_void = || QueuedCommand::release(claim.clone(), None).is_void(node(), NOW);
    assert!(is_void(), "nothing was written");
    let mut acquire = QueuedCommand::acquire(claim.clone(), ttl, Wants::Nothing, sink());
    write(&mut acquire, NOW);
    assert!(!is_void(), "it is not known what became of it");
    acquire.note_answer(node(), &Answer::Failed(NodeFailure::ShutDown));
    assert!(!is_void(), "that is not known either");
    acquire.note_answer(node(), &denied);
    assert!(is_void(), "others hold the lock there");
    write(&mut QueuedCommand::repair(claim.clone(), NOW.after(Duration::from_secs(9))), NOW);
    assert!(!is_void(), "the lock may be put back");
    let theirs = Arc::new(Value::of(b"theirs"));
    let mut adopt = QueuedCommand::adopt(claim.clone(), ttl, theirs, sink());
    write(&mut adopt, NOW);
    adopt.note_answer(node(), &denied);
    assert!(!is_void(), "a repeated one may have been done before");
}

#[test]
fn denied_repair_extension_or_raise_leaves_its_release_pending() {
    let (until, ballot) =
        (NOW.after(Duration::from_secs(9)), || Ballot::new(Arc::new(Ignore), node()));
    let commands: [&dyn Fn(Arc<Claim>) -> QueuedCommand; 3] = [
        // It finds a key that can be this client's: an earlier acquire or repair has set it.
        &|claim| QueuedCommand::repair(claim, until),
        &|claim| QueuedCommand::extend(claim, until, false, ballot()),
        &|claim| QueuedCommand::raise(claim, 7, ballot()),
    ];
    for command in commands {
        let claim = claim();
        assert!(claim.note_written(node(), Ttl::SHORTEST, NOW));
        let mut command = command(claim.clone());
        write(&mut command, NOW);
        command.note_answer(node(), &Answer::Denied(Conflict::default()));
        assert!(!QueuedCommand::release(claim, None).is_void(node(), NOW));
    }
}

#[test]
fn release_in_doubt_stays_with_the_connection_of_its_acquire() {
    let claim = claim();
    let may_go = || QueuedCommand::release(claim.clone(), None).can_be_released_by_others(node());
    assert!(!may_go(), "the acquire is not answered");
    claim.note_kept(node(), NOW);
    assert!(may_go());
    claim.note_in_doubt(node());
    assert!(!may_go(), "a late acquire could set the key after the release");
}

#[test]
fn a_script_that_is_not_known_is_sent_with_its_source_once() {
    let mut release = QueuedCommand::release(claim(), None);
    write(&mut release, NOW);
    let unknown = [reply("-NOSCRIPT no\r\n")];
    assert!(release.fall_back(&unknown));
    let packed = text(&written(&mut release, NOW, TRACKS));
    assert!(packed.contains("\r\nEVAL\r\n"), "{packed}");
    assert!(release.is_first_release(), "the node did nothing before");
    assert!(!release.fall_back(&unknown), "that was done");
}

#[test]
fn a_command_of_the_servers_own_that_did_nothing_is_followed_by_the_script() {
    for (wire, falls_back, is_refused) in [
        (":1\r\n", false, false),
        (":0\r\n", true, false),
        ("-ERR unknown command 'DELIFEQ'\r\n", true, true),
        ("-NOPERM no\r\n", true, true),
        ("-WRONGTYPE no\r\n", true, false),
        ("-ERR Key should be of string type if conditions are specified\r\n", true, false),
        ("-BUSY x\r\n", false, false),
    ] {
        let can = Capabilities { deletes: Some(NativeDelete::DelIfEq), ..TRACKS };
        let mut release = QueuedCommand::release(claim(), None);
        let packed = text(&written(&mut release, NOW, can));
        assert!(packed.contains("DELIFEQ"), "{packed}");
        let replies = [reply(wire)];
        assert_eq!(release.is_native_refused(&replies), is_refused, "{wire:?}");
        assert_eq!(release.fall_back(&replies), falls_back, "{wire:?}");
        if falls_back {
            let packed = text(&written(&mut release, NOW, can));
            assert!(packed.contains("EVALSHA"), "{packed}");
            assert!(release.is_first_release(), "nothing was deleted before: {wire:?}");
            assert!(!release.fall_back(&[reply(":0\r\n")]), "the script tells");
        }
    }
    let can = Capabilities { deletes: Some(NativeDelete::DelIfEq), ..TRACKS };
    let mut release = QueuedCommand::release(claim(), None);
    written(&mut release, NOW, can);
    written(&mut release, NOW, can);
    assert!(release.fall_back(&[reply(":0\r\n")]));
    written(&mut release, NOW, can);
    assert!(!release.is_first_release(), "the first may have deleted it");
}

struct Ignore;

impl super::super::ballot::VoteSink for Ignore {
    fn handle_answer(&self, _: NodeId, _: Answer, _: Option<Time>) {}
}
