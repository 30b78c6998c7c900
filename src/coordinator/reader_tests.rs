//! Tests of readers and writers.

use super::any_of_tests::acquired;
use super::world_calls_tests::{Held, request, waiting};
use super::world_tests::{World, ms};
use super::{AcquireId, AcquireRequest, SharingTerms};
use crate::observe::event::CommandKind;
use crate::protocol::RetryPolicy;
use crate::wire::SharedKeys;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn shared(request: AcquireRequest, is_reader: bool) -> AcquireRequest {
    let keys = Arc::new(SharedKeys::for_key(b"k").expect("a key that can have readers"));
    AcquireRequest { sharing: Some(SharingTerms { keys, is_reader }), ..request }
}

pub(super) fn reader() -> AcquireRequest {
    shared(request(&["k"]), true)
}

pub(super) fn writer() -> AcquireRequest {
    shared(request(&["k"]), false)
}

/// Returns an acquire that only notifications wake before the end of the test.
pub(super) fn waits(world: &World, is_reader: bool) -> AcquireRequest {
    let schedule = RetryPolicy::fixed(40 * SECOND).schedule();
    let waiting = waiting(&["k"], world.now, 30 * SECOND);
    shared(AcquireRequest { schedule, ..waiting }, is_reader)
}

pub(super) fn is_refused(world: &mut World, process: usize, request: AcquireRequest) -> bool {
    let id = world.acquire(process, request);
    world.run_for(ms(200));
    world.take_acquired(process, id).expect("decided").is_err()
}

#[test]
fn readers_share_the_key_and_each_has_its_own_lease() {
    let mut world = World::new(3, 1);
    let [a, b] = [world.connected(), world.connected()];
    let readers = [a, a, b].map(|process| world.lock(process, reader()));
    assert!(is_refused(&mut world, b, writer()) && is_refused(&mut world, b, request(&["k"])));
    for held in &readers {
        assert!(world.is_valid(held));
        assert_eq!(world.copies("k"), 3);
        world.release(held);
        world.run_for(ms(20));
    }
    assert_eq!(world.copies("k"), 0);
    let written = world.lock(b, writer());
    assert!(is_refused(&mut world, a, reader()));
    world.release(&written);
    world.run_for(ms(20));
    world.assert_idle();
}

#[test]
fn release_of_the_last_reader_wakes_a_writer_of_its_process() {
    let mut world = World::new(3, 2);
    let a = world.connected();
    let readers = [(); 2].map(|()| world.lock(a, reader()));
    let id = world.acquire(a, waits(&world, false));
    world.run_for(ms(100));
    world.release(&readers[0]);
    world.run_for(ms(100));
    assert!(world.take_acquired(a, id).is_none(), "a reader is left");
    let sent = world.finished(a, CommandKind::Acquire);
    let released = world.now;
    world.release(&readers[1]);
    let written = acquired(&mut world, a, id);
    assert!(world.now.since(released) < ms(20), "{:?}", world.now.since(released));
    assert!(world.finished(a, CommandKind::Acquire) - sent <= 2 * 3);
    world.release(&written);
}

#[test]
fn release_of_a_writer_wakes_all_waiting_readers() {
    let mut world = World::new(3, 3);
    let [a, b] = [world.connected(), world.connected()];
    let written = world.lock(a, writer());
    let ids: Vec<_> =
        [a, a, b, b].into_iter().map(|it| (it, world.acquire(it, waits(&world, true)))).collect();
    world.run_for(ms(100));
    let released = world.now;
    world.release(&written);
    for (process, id) in ids {
        acquired(&mut world, process, id);
    }
    assert!(world.now.since(released) < ms(20), "{:?}", world.now.since(released));
}

#[test]
fn release_of_a_writer_with_an_intent_wakes_readers() {
    let mut world = World::new(3, 4);
    let [a, b] = [world.connected(), world.connected()];
    let read = world.lock(a, reader());
    let id = world.acquire(b, waits(&world, false));
    world.run_for(ms(50));
    assert_eq!(world.copies("k#quorlock:writer:{k}"), 3);
    assert!(is_refused(&mut world, a, reader()), "a writer waits");
    world.release(&read);
    let written = acquired(&mut world, b, id);
    let id = world.acquire(a, waits(&world, true));
    world.run_for(ms(50));
    let released = world.now;
    world.release(&written);
    let read = acquired(&mut world, a, id);
    assert!(world.now.since(released) < ms(20), "{:?}", world.now.since(released));
    assert_eq!(world.copies("k#quorlock:writer:{k}"), 0);
    world.release(&read);
}

#[test]
fn waiting_readers_go_first_after_a_write() {
    for seed in 0..20 {
        let mut world = World::new(5, seed);
        world.jitter = world.delay;
        let [a, b, c, d] = [(); 4].map(|()| world.connected());
        let written = world.lock(a, writer());
        let readers: Vec<_> =
            [b, c, d].into_iter().map(|it| (it, world.acquire(it, waits(&world, true)))).collect();
        world.run_for(ms(20));
        let next = world.acquire(b, waits(&world, false));
        world.run_for(ms(50));
        world.release(&written);
        let readers: Vec<_> =
            readers.into_iter().map(|(process, id)| acquired(&mut world, process, id)).collect();
        assert!(world.take_acquired(b, next).is_none(), "seed {seed}: beside readers");
        assert!(readers.iter().all(|held| world.is_valid(held)), "seed {seed}");
        for held in &readers {
            world.release(held);
        }
        let released = world.now;
        acquired(&mut world, b, next);
        assert!(world.now.since(released) < ms(50), "{:?}", world.now.since(released));
    }
}

/// Each of four processes has callers that read for 10 ms, again and again, while a caller of
/// another process writes. Returns the longest wait of the writer, and the number of reads.
fn longest_write_wait(seed: u64, callers: usize) -> (Duration, usize) {
    let mut world = World::new(5, seed);
    world.jitter = world.delay;
    let (processes, w) = ([(); 4].map(|()| world.connected()), world.connected());
    let mut waiting: Vec<(usize, AcquireId)> = Vec::new();
    let mut held: Vec<(usize, Held, _)> = Vec::new();
    let mut idle: Vec<_> = (0..callers).map(|caller| processes[caller % 4]).collect();
    let (mut write, mut written) = (None, None);
    let (mut longest, mut reads, mut writes) = (Duration::ZERO, 0, 0);
    let end = world.now.after(SECOND);
    while world.now < end {
        for process in idle.drain(..) {
            waiting.push((process, world.acquire(process, waits(&world, true))));
        }
        if write.is_none() && written.is_none() {
            write = Some((world.acquire(w, waits(&world, false)), world.now));
        }
        world.run_for(ms(1));
        let now = world.now;
        for (process, id) in std::mem::take(&mut waiting) {
            match world.take_acquired(process, id) {
                Some(result) => held.push((process, result.expect("acquired"), now)),
                None => waiting.push((process, id)),
            }
        }
        if let Some((id, since)) = write
            && let Some(result) = world.take_acquired(w, id)
        {
            (write, written) = (None, Some((result.expect("acquired"), now)));
            longest = longest.max(now.since(since));
            writes += 1;
        }
        for (process, lease, _) in held.extract_if(.., |(_, _, since)| now.since(*since) >= ms(10))
        {
            world.release(&lease);
            idle.push(process);
            reads += 1;
        }
        if let Some((lease, _)) = written.take_if(|(_, since)| now.since(*since) >= ms(2)) {
            world.release(&lease);
        }
    }
    println!("{writes} writes, {reads} reads, longest wait of a writer {longest:?}");
    (longest, reads)
}

#[test]
fn writer_among_many_readers_waits_for_few_of_their_turns() {
    let (longest, reads) = longest_write_wait(0, 50);
    assert!(longest < ms(50), "{longest:?}");
    assert!(reads > 2_000, "{reads}");
}

#[test]
fn downgraded_writer_is_a_reader_on_each_node_that_replies() {
    let mut world = World::new(3, 5);
    let [a, b] = [world.connected(), world.connected()];
    let held = world.lock(a, writer());
    let (coordinator, now) = world.coordinator(a);
    coordinator.handle_downgrade(held.id, now).expect("held");
    world.run_for(ms(50));
    let readers = [a, b].map(|process| world.lock(process, reader()));
    assert!(world.is_valid(&held) && is_refused(&mut world, b, writer()));
    for held in readers.iter().chain([&held]) {
        world.release(held);
    }
    world.run_for(ms(50));
    assert_eq!(world.copies("k"), 0);
    world.assert_idle();
}
