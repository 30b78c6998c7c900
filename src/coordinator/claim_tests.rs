//! Tests of claims.

use super::*;

fn claim() -> Claim {
    let keys = Keys::one(b"k".as_slice().into());
    let late_from = Time::default().after(Duration::from_millis(25));
    Claim::new(keys, Value::of(b"v"), None, 3, late_from)
}

fn at(ms: u64) -> Time {
    Time::default().after(Duration::from_millis(ms))
}

#[test]
fn refusal_with_command_in_doubt_is_ignored() {
    let (claim, node) = (claim(), NodeId::new(1));
    claim.handle_written(node, Ttl::SHORTEST, at(0));
    claim.handle_denied(node);
    assert!(claim.is_denied(node) && claim.has_rivals());
    claim.handle_written(node, Ttl::SHORTEST, at(1));
    assert!(!claim.is_denied(node), "a later command may set the key");
    claim.handle_in_doubt(node);
    claim.handle_denied(node);
    assert!(!claim.is_denied(node));
    assert!(claim.is_written(node) && !claim.is_written(NodeId::new(0)));
}

#[test]
fn expiry_is_that_of_the_longest_key_with_slack() {
    let (claim, ttl) = (claim(), Ttl::covering(Duration::from_millis(640)));
    claim.handle_written(NodeId::new(0), ttl, at(5));
    claim.handle_written(NodeId::new(1), Ttl::SHORTEST, at(6));
    assert_eq!(claim.expiry(), at(5 + 640 + 10 + 10));
}

#[test]
fn command_is_late_if_the_first_one_was_written_late() {
    let claim = claim();
    let [first, second, third] = [0, 1, 2].map(NodeId::new);
    claim.handle_written(first, Ttl::SHORTEST, at(24));
    claim.handle_written(first, Ttl::SHORTEST, at(30));
    claim.handle_written(second, Ttl::SHORTEST, at(25));
    assert_eq!([first, second, third].map(|node| claim.is_late(node)), [false, true, true]);
}

#[test]
fn choice_of_a_single_key_leaves_no_other_keys() {
    let claim = Arc::new(claim().of_any_key());
    let chosen = claim.choose(0, NodeSet::default()).expect("the first key");
    assert_eq!((chosen.keys(), chosen.other_keys().is_none()), (claim.keys(), true));
    assert!(claim.choose(1, NodeSet::default()).is_none(), "no such key");
}

#[test]
fn only_grants_of_the_chosen_key_count_as_kept() {
    let keys = [b"a", b"b"].map(|key| key.as_slice().into());
    let keys = Keys::all(keys.to_vec()).expect("two keys");
    let any = Arc::new(Claim::new(keys, Value::of(b"v"), None, 3, at(25)).of_any_key());
    let [first, second, third] = [0, 1, 2].map(NodeId::new);
    any.handle_kept(first, 0, at(9));
    any.handle_kept(second, 1, at(9));
    let chosen = any.choose(1, [second].into_iter().collect()).expect("the second key");
    let others = chosen.other_keys().expect("the first key");
    any.handle_kept(first, 0, at(9));
    any.handle_kept(third, 1, at(9));
    let kept = |claim: &Claim| [first, second, third].map(|node| claim.take_kept(node));
    assert_eq!(kept(&others), [None; 3]);
    assert_eq!(kept(&chosen), [None, Some(at(9)), Some(at(9))]);
}

#[test]
fn extensions_of_the_chosen_key_do_not_extend_the_other_keys() {
    let keys = Keys::all([b"a", b"b"].map(|key| key.as_slice().into()).to_vec());
    let any = Claim::new(keys.expect("two keys"), Value::of(b"v"), None, 3, at(25));
    let (any, node) = (Arc::new(any.of_any_key()), NodeId::new(0));
    any.handle_written(node, Ttl::SHORTEST, at(0));
    let expiry = any.expiry();
    let chosen = any.choose(0, NodeSet::default()).expect("the first key");
    chosen.handle_written(node, Ttl::SHORTEST, at(1_000));
    let others = chosen.other_keys().expect("the second key");
    assert_eq!(others.expiry(), expiry);
    assert!(chosen.expiry() > expiry);
}

#[test]
fn kept_time_grows_until_the_keys_are_lost() {
    let (claim, node) = (claim(), NodeId::new(2));
    claim.handle_kept(node, 0, at(9));
    claim.handle_kept(node, 0, at(5));
    assert_eq!(claim.take_kept(node), Some(at(9)));
    assert_eq!(claim.take_kept(node), None);
}
