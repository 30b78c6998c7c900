//! Users and passwords that are asked for before each connection, and change.

use crate::{SOON, all_up, builder, eventually, is_up, ms, state};
use kit::{Cluster, Server};
use quorlock::{Builder, Credentials, Redlock, ReleaseOutcome};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What the servers' own user keeps, for the test to look inside by.
const ROOT: &str = "root";

/// How many locks are kept up, renewed one after the other.
const LOCKS: usize = 10;

/// Long enough for a busy machine, and sat out twice.
const TTL: Duration = ms(10_000);

/// Who knows the passwords: by the node's name, with how often it was asked for.
#[derive(Clone, Default)]
struct Vault(Arc<Mutex<BTreeMap<String, (Credentials, usize)>>>);

impl Vault {
    fn put(&self, node: &Server, credentials: Credentials) {
        let mut known = self.0.lock().expect("no panic");
        let asked = known.get(&name(node)).map_or(0, |(_, asked)| *asked);
        known.insert(name(node), (credentials, asked));
    }

    fn get(&self, node: &str) -> Result<Credentials, String> {
        let mut known = self.0.lock().expect("no panic");
        let (credentials, asked) = known.get_mut(node).ok_or("who is that?")?;
        *asked += 1;
        Ok(credentials.clone())
    }

    fn asked(&self, node: &Server) -> usize {
        self.0.lock().expect("no panic").get(&name(node)).map_or(0, |(_, asked)| *asked)
    }
}

fn name(node: &Server) -> String {
    node.addr().to_string()
}

fn with(builder: Builder, vault: &Vault) -> Redlock {
    let vault = vault.clone();
    let ask = move |node: String| {
        let vault = vault.clone();
        async move { vault.get(&node) }
    };
    builder.credentials(ask).build().expect("good settings")
}

/// Lets `user` in by the password `number`, and by no earlier one.
fn let_in(node: &Server, user: &str, number: usize) {
    let (old, new) = (format!("<secret-{}", number.wrapping_sub(1)), format!(">secret-{number}"));
    if number > 0 {
        node.cmd(&["ACL", "SETUSER", user, &old]);
    }
    node.cmd(&["ACL", "SETUSER", user, "on", &new, "~*", "&*", "+@all"]);
}

/// The user who is let in at the node at `place`: some servers know a password only.
fn user(place: usize) -> &'static str {
    if place < 2 { "default" } else { "locks" }
}

fn credentials(place: usize, number: usize) -> Credentials {
    let password = format!("secret-{number}");
    if place < 2 { Credentials::password(password) } else { ("locks", password).into() }
}

/// What is left of all locks on a node together: it rises with a renewal, and at no other time.
fn left(node: &Server) -> i64 {
    let sum = "local sum = 0 for at = 1, #KEYS do sum = sum + redis.call('PTTL', KEYS[at]) end return sum";
    let mut command = vec!["EVAL".to_owned(), sum.to_owned(), LOCKS.to_string()];
    command.extend((0..LOCKS).map(|place| format!("r{place}")));
    match node.cmd(&command) {
        redis::Value::Int(left) => left,
        other => panic!("no number: {other:?}"),
    }
}

async fn is_renewed(node: &Server, what: &str) {
    let mut least = left(node);
    eventually(what, || {
        let now = left(node);
        let is_renewed = now > least;
        least = now;
        is_renewed
    })
    .await;
}

#[tokio::test]
async fn twenty_rotations_two_nodes_at_a_time_and_no_lock_is_lost() {
    let cluster = Cluster::start_with(5, &Server::builder().password(ROOT));
    let vault = Vault::default();
    let mut numbers = [0; 5];
    for (place, node) in cluster.iter().enumerate() {
        let_in(node, user(place), 0);
        vault.put(node, credentials(place, 0));
    }
    let redlock = with(builder(&cluster).ttl(TTL), &vault);
    redlock.ready().await.expect("they let us in");
    let mut leases = Vec::new();
    let begun = Instant::now();
    for place in 0..LOCKS {
        leases
            .push(redlock.acquire(format!("r{place}")).auto_extend_forever().await.expect("free"));
        tokio::time::sleep(TTL / 3 / 10).await;
    }

    for rotation in 0..20 {
        let rotated = [(2 * rotation) % 5, (2 * rotation + 1) % 5];
        let before = rotated.map(|place| vault.asked(&cluster[place]));
        for place in rotated {
            numbers[place] += 1;
            let_in(&cluster[place], user(place), numbers[place]);
            // Half of the time the new password is known here too late for the first try.
            if rotation % 2 == 0 {
                vault.put(&cluster[place], credentials(place, numbers[place]));
            }
            cluster[place].cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
        }
        for (place, before) in rotated.into_iter().zip(before) {
            let node = &cluster[place];
            if rotation % 2 == 1 {
                let is_refused = || state(&redlock, place).to_string().contains("WRONGPASS");
                eventually("the old password is refused", is_refused).await;
                vault.put(node, credentials(place, numbers[place]));
            }
            let is_back = || vault.asked(node) > before && is_up(&redlock, place);
            eventually("it is let in by the new one", is_back).await;
            is_renewed(node, "locks are kept up there").await;
        }
        let lost: Vec<_> = leases.iter().filter_map(|lease| lease.loss()).collect();
        assert!(lost.is_empty(), "rotation {rotation}: {lost:?}");
    }
    tokio::time::sleep((2 * TTL).saturating_sub(begun.elapsed())).await;
    for lease in leases {
        assert!(lease.is_valid(), "{:?}", lease.loss());
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
    redlock.close().await.expect("they answer");
}

#[tokio::test]
async fn a_connection_that_stands_is_kept_when_the_password_changes() {
    let cluster = Cluster::start_with(3, &Server::builder().password(ROOT));
    let vault = Vault::default();
    for (place, node) in cluster.iter().enumerate() {
        let_in(node, user(place), 0);
        vault.put(node, credentials(place, 0));
    }
    let redlock = with(builder(&cluster), &vault);
    let lease = redlock.acquire("r").await.expect("free");
    eventually("all are connected", || all_up(&redlock)).await;
    let asked = || cluster.iter().map(|node| vault.asked(node)).sum::<usize>();
    let before = asked();
    for (place, node) in cluster.iter().enumerate() {
        let_in(node, user(place), 1);
    }
    lease.extend(ms(60_000)).await.expect("the connections are good");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    assert_eq!(asked(), before);
    // A look has connections of its own, which ask.
    let looked = redlock.check().await.expect("nodes can be looked at");
    assert!(looked.iter().all(|node| node.to_string().contains("WRONGPASS")), "{looked:?}");
    assert_eq!(asked(), before + 3);
    for (place, node) in cluster.iter().enumerate() {
        vault.put(node, credentials(place, 1));
    }
    let looked = redlock.check().await.expect("nodes can be looked at");
    assert!(looked.iter().all(|node| node.version().is_some()), "{looked:?}");
}

#[tokio::test]
async fn they_take_the_place_of_what_a_url_says_and_its_database_stays() {
    let cluster = Cluster::start_with(3, &Server::builder().password(ROOT));
    let vault = Vault::default();
    for (place, node) in cluster.iter().enumerate() {
        let_in(node, user(place), 0);
        vault.put(node, credentials(place, 0));
    }
    let urls = cluster.iter().map(|node| format!("redis://nobody:wrong@{}/7", node.addr()));
    let builder = Redlock::builder().nodes(urls).node_timeout(ms(1_000));
    let redlock = with(builder, &vault);
    let lease = redlock.acquire("r").wait(SOON).await.expect("they let us in");
    let in_seven = |node: &Server| node.info("keyspace").contains_key("db7");
    assert!(cluster.iter().filter(|node| in_seven(node)).count() >= 2);
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
}

/// What becomes of a question.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    Fails,
    Panics,
    PanicsAtOnce,
    Hangs,
    Answers,
}

#[tokio::test]
async fn whoever_fails_to_tell_them_costs_a_connection_and_is_asked_again() {
    let cluster = Cluster::start_with(3, &Server::builder().password(ROOT));
    let odd = name(&cluster[0]);
    for (mood, told) in [
        (Mood::Fails, "no credentials: the vault is sealed"),
        (Mood::Panics, "no credentials: the callback panicked"),
        (Mood::PanicsAtOnce, "no credentials: the callback panicked"),
        (Mood::Hangs, "no credentials: no result within 300ms"),
    ] {
        let current = Arc::new(Mutex::new(mood));
        let asked = Arc::new(AtomicUsize::new(0));
        let (theirs, odd, count) = (current.clone(), odd.clone(), asked.clone());
        let ask = move |node: String| {
            let mood = if node == odd { *theirs.lock().expect("no panic") } else { Mood::Answers };
            count.fetch_add(usize::from(node == odd), Ordering::Relaxed);
            assert!(mood != Mood::PanicsAtOnce, "the password is {ROOT}");
            async move {
                match mood {
                    Mood::Fails => Err(format!("\nthe vault is sealed\nby {ROOT}")),
                    Mood::Hangs => std::future::pending().await,
                    Mood::Answers => Ok(Credentials::password(ROOT)),
                    Mood::Panics | Mood::PanicsAtOnce => panic!("the password is {ROOT}"),
                }
            }
        };
        let builder = builder(&cluster).connect_timeout(ms(300)).credentials(ask);
        assert!(!format!("{builder:?}").contains(ROOT));
        let redlock = builder.build().expect("good settings");
        let lease = redlock.acquire("r").wait(SOON).await.expect("two are a quorum");
        let is_told = || state(&redlock, 0).to_string() == format!("down: {told}");
        eventually(&format!("{mood:?}: {told}"), is_told).await;
        let looked = redlock.check().await.expect("nodes can be looked at");
        assert!(looked[0].to_string().contains(told), "{looked:?}");
        assert!(looked[1].version().is_some(), "{looked:?}");
        let before = asked.load(Ordering::Relaxed);
        let is_asked = || asked.load(Ordering::Relaxed) > before + 1;
        eventually("it is asked again and again", is_asked).await;
        let shown = format!("{redlock:?} {:?} {}", redlock.nodes(), lease.report());
        assert!(!shown.contains(ROOT), "{shown}");

        *current.lock().expect("no panic") = Mood::Answers;
        eventually("it is mended", || is_up(&redlock, 0)).await;
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "{mood:?}");
        redlock.close().await.expect("they answer");
    }
}
