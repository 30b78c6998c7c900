//! Tests of the reservations of waiting readers and writers.

use super::any_of_tests::{SECOND, acquired};
use super::reader_tests::{is_refused, reader, waits, writer};
use super::world_tests::{HostState, World, ms};
use super::{AcquireId, AcquireRequest};
use std::time::Duration;

const INTENT: &str = "k#quorlock:writer:{k}";
const REQUEST: &str = "k#quorlock:waiting:{k}";

/// How a waiting acquire ends without a lease.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Deadline,
    Cancel,
    Close,
}

/// Ends the waiting acquire, whose deadline is in one second.
fn end_waiting(world: &mut World, process: usize, id: AcquireId, ending: Ending) {
    let (coordinator, now) = world.coordinator(process);
    match ending {
        Ending::Deadline => _ = world.run_until(now.after(SECOND), |_| false),
        Ending::Cancel => coordinator.handle_cancel(id, now),
        Ending::Close => coordinator.handle_close(SECOND, now),
    }
}

#[test]
fn writer_that_gives_up_lets_waiting_readers_in() {
    for ending in [Ending::Deadline, Ending::Cancel, Ending::Close] {
        let mut world = World::new(3, 6);
        let [a, b, c] = [(); 3].map(|()| world.connected());
        let read = world.lock(a, reader());
        let wait =
            AcquireRequest { deadline: Some(world.now.after(SECOND)), ..waits(&world, false) };
        let writing = world.acquire(b, wait);
        world.run_for(ms(100));
        let mut others = vec![(c, world.acquire(c, waits(&world, true)))];
        if !matches!(ending, Ending::Close) {
            others.push((b, world.acquire(b, waits(&world, true))));
        }
        world.run_for(ms(100));
        assert_eq!((world.copies(INTENT), world.copies(REQUEST)), (3, 3), "{ending:?}");
        end_waiting(&mut world, b, writing, ending);
        let ended = world.now;
        for (process, id) in others {
            let held = acquired(&mut world, process, id);
            assert!(world.now.since(ended) < ms(20), "{ending:?}: {:?}", world.now.since(ended));
            world.release(&held);
        }
        assert!(world.is_valid(&read));
        world.run_for(ms(50));
        assert_eq!((world.copies(INTENT), world.copies(REQUEST)), (0, 0), "{ending:?}");
    }
}

#[test]
fn reader_that_gives_up_leaves_no_request() {
    for ending in [Ending::Deadline, Ending::Cancel, Ending::Close] {
        let mut world = World::new(3, 7);
        let [a, b] = [world.connected(), world.connected()];
        let written = world.lock(a, writer());
        let wait =
            AcquireRequest { deadline: Some(world.now.after(SECOND)), ..waits(&world, true) };
        let id = world.acquire(b, wait);
        world.run_for(ms(100));
        assert_eq!(world.copies(REQUEST), 3, "{ending:?}");
        end_waiting(&mut world, b, id, ending);
        world.run_for(ms(20));
        assert_eq!(world.copies(REQUEST), 0, "{ending:?}");
        world.release(&written);
    }
}

#[test]
fn intent_ends_on_nodes_that_could_not_be_reached() {
    let mut world = World::new(3, 8);
    let [a, b] = [world.connected(), world.connected()];
    let read = world.lock(a, reader());
    let id = world.acquire(b, waits(&world, false));
    world.run_for(ms(100));
    world.set_state(2, HostState::Hung);
    world.processes[b].coordinator.handle_cancel(id, world.now);
    world.run_for(SECOND);
    assert_eq!(world.copies(INTENT), 1);
    world.set_state(2, HostState::Up);
    world.run_for(SECOND);
    assert_eq!(world.copies(INTENT), 0);
    world.release(&read);
}

#[test]
fn intent_ends_on_nodes_that_refused_the_write() {
    for downgrades in [false, true] {
        let mut world = World::new(3, 9);
        let [a, b] = [world.connected(), world.connected()];
        let read = world.lock(a, reader());
        let id = world.acquire(b, waits(&world, false));
        world.run_for(ms(100));
        // The reader loses its entry on two of three nodes.
        (0..2).for_each(|host| world.delete(host, "k"));
        let written = acquired(&mut world, b, id);
        assert!(world.copies(INTENT) > 0);
        if downgrades {
            let (coordinator, now) = world.coordinator(b);
            coordinator.handle_downgrade(written.id, now).expect("held");
        } else {
            world.release(&written);
        }
        world.run_for(ms(20));
        assert_eq!(world.copies(INTENT), 0, "downgrades: {downgrades}");
        world.release(&read);
    }
}

#[test]
fn intent_of_another_writer_outlives_one_that_gives_up() {
    let mut world = World::new(3, 10);
    let [a, b, c] = [(); 3].map(|()| world.connected());
    let read = world.lock(a, reader());
    let patient = world.acquire(b, waits(&world, false));
    world.run_for(ms(100));
    let other = world.acquire(c, waits(&world, false));
    world.run_for(ms(100));
    end_waiting(&mut world, c, other, Ending::Cancel);
    world.run_for(ms(100));
    assert!(world.copies(INTENT) == 3 && is_refused(&mut world, a, reader()));
    world.release(&read);
    acquired(&mut world, b, patient);
}

#[test]
fn intent_that_lasts_longer_than_its_ttl_is_void() {
    let mut world = World::new(3, 11);
    let [a, b] = [world.connected(), world.connected()];
    // The nodes' clocks were an hour ahead when the intent of a 10 s lease was stored.
    (0..3).for_each(|host| world.put(host, INTENT, "10000 other", 3_600 * SECOND));
    let read = world.lock(a, reader());
    let id = world.acquire(b, waits(&world, false));
    world.run_for(ms(100));
    assert!(is_refused(&mut world, a, reader()), "a new intent replaces the void one");
    world.release(&read);
    let written = acquired(&mut world, b, id);
    world.release(&written);
    world.run_for(ms(20));
    assert_eq!(world.copies(INTENT), 0);
}

/// Near writers write for 1 ms each, again and again, while one caller of each reading process waits for the lock,
/// again and again. The reading processes are this far from the nodes. Returns the number of writes and of each
/// process's reads in three seconds.
fn reads_beside_near_writers(distances: &[Duration]) -> (usize, Vec<usize>) {
    let mut world = World::new(3, 12);
    let writers = [world.connected(), world.connected()];
    let far: Vec<_> = distances
        .iter()
        .map(|distance| {
            let process = world.connected();
            world.processes[process].distance = *distance;
            process
        })
        .collect();
    // The heartbeats measure the new round-trip times.
    world.run_for(5 * SECOND);
    let mut writing: Vec<_> =
        writers.iter().map(|it| (*it, world.acquire(*it, waits(&world, false)))).collect();
    let mut reading: Vec<_> =
        far.iter().map(|it| (*it, world.acquire(*it, waits(&world, true)))).collect();
    let (mut written, mut reads, end) = (0, vec![0; far.len()], world.now.after(3 * SECOND));
    while world.now < end {
        world.run_for(ms(1));
        for (process, id) in &mut writing {
            if let Some(result) = world.take_acquired(*process, *id) {
                let held = result.expect("a lease");
                world.run_for(ms(1));
                world.release(&held);
                written += 1;
                *id = world.acquire(*process, waits(&world, false));
            }
        }
        for (place, (process, id)) in reading.iter_mut().enumerate() {
            if let Some(result) = world.take_acquired(*process, *id) {
                world.release(&result.expect("a lease"));
                reads[place] += 1;
                *id = world.acquire(*process, waits(&world, true));
            }
        }
    }
    println!("{written} writes, {reads:?} reads");
    (written, reads)
}

#[test]
fn far_readers_get_turns_beside_near_writers() {
    for distances in [&[ms(20)][..], &[ms(12)], &[ms(20), ms(0)], &[ms(20), ms(20), ms(3)]] {
        let (writes, reads) = reads_beside_near_writers(distances);
        assert!(writes > 20, "{distances:?}: {writes}");
        // At least one read for each four writes.
        assert!(reads.iter().all(|it| *it >= writes / 4), "{distances:?}: {writes}, {reads:?}");
    }
}
