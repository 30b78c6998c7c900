//! Tests of users and passwords that are provided by `Builder::credentials` and change while the client runs.

use crate::{SOON, all_up, builder, eventually, is_up, ms, state};
use kit::{Cluster, Server};
use quorlock::{Builder, Credentials, Redlock, ReleaseOutcome};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The password of the servers' default user, which the test uses to inspect the nodes.
const ROOT: &str = "root";

/// The number of locks. With several locks, renewals are spread over time.
const LOCKS: usize = 10;

/// A TTL that is long enough for renewals on a busy machine. The test takes at least twice this time.
const TTL: Duration = ms(10_000);

/// A source of credentials. For each node name, stores the node's credentials and how often the client has requested
/// them.
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
        let (credentials, asked) = known.get_mut(node).ok_or("unknown node")?;
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
    builder.credentials(ask).build().expect("valid settings")
}

/// Sets the user's password to `secret-` followed by `number`, and removes the password with the previous number.
fn set_password(node: &Server, user: &str, number: usize) {
    let (old, new) = (format!("<secret-{}", number.wrapping_sub(1)), format!(">secret-{number}"));
    if number > 0 {
        node.cmd(&["ACL", "SETUSER", user, &old]);
    }
    node.cmd(&["ACL", "SETUSER", user, "on", &new, "~*", "&*", "+@all"]);
}

/// Returns the user name for the node at index `place`. The first two nodes use a password without a user name.
fn user(place: usize) -> &'static str {
    if place < 2 { "default" } else { "locks" }
}

fn credentials(place: usize, number: usize) -> Credentials {
    let password = format!("secret-{number}");
    if place < 2 { Credentials::password(password) } else { ("locks", password).into() }
}

/// Returns the sum of the remaining TTLs of all locks on a node, in milliseconds. The sum only increases if a lease is
/// renewed.
fn total_remaining_ttl_ms(node: &Server) -> i64 {
    let sum = "local sum = 0 for at = 1, #KEYS do sum = sum + redis.call('PTTL', KEYS[at]) end return sum";
    let mut command = vec!["EVAL".to_owned(), sum.to_owned(), LOCKS.to_string()];
    command.extend((0..LOCKS).map(|place| format!("r{place}")));
    match node.cmd(&command) {
        redis::Value::Int(left) => left,
        other => panic!("no number: {other:?}"),
    }
}

async fn is_renewed(node: &Server, what: &str) {
    let mut least = total_remaining_ttl_ms(node);
    eventually(what, || {
        let now = total_remaining_ttl_ms(node);
        let is_renewed = now > least;
        least = now;
        is_renewed
    })
    .await;
}

#[tokio::test]
async fn leases_survive_password_rotation_on_two_nodes_at_a_time() {
    let cluster = Cluster::start_with(5, &Server::builder().password(ROOT));
    let vault = Vault::default();
    let mut numbers = [0; 5];
    for (place, node) in cluster.iter().enumerate() {
        set_password(node, user(place), 0);
        vault.put(node, credentials(place, 0));
    }
    let redlock = with(builder(&cluster).ttl(TTL), &vault);
    redlock.ready().await.expect("the credentials are valid");
    let mut leases = Vec::new();
    let started = Instant::now();
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
            set_password(&cluster[place], user(place), numbers[place]);
            // In every second rotation, the source returns the old password at first.
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
            let is_connected = || vault.asked(node) > before && is_up(&redlock, place);
            eventually("the node accepts the new password", is_connected).await;
            is_renewed(node, "locks are renewed on this node").await;
        }
        let lost: Vec<_> = leases.iter().filter_map(|lease| lease.loss()).collect();
        assert!(lost.is_empty(), "rotation {rotation}: {lost:?}");
    }
    tokio::time::sleep((2 * TTL).saturating_sub(started.elapsed())).await;
    for lease in leases {
        assert!(lease.is_valid(), "{:?}", lease.loss());
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
    redlock.close().await.expect("nodes are up");
}

#[tokio::test]
async fn open_connection_survives_a_password_change() {
    let cluster = Cluster::start_with(3, &Server::builder().password(ROOT));
    let vault = Vault::default();
    for (place, node) in cluster.iter().enumerate() {
        set_password(node, user(place), 0);
        vault.put(node, credentials(place, 0));
    }
    let redlock = with(builder(&cluster), &vault);
    let lease = redlock.acquire("r").await.expect("free");
    eventually("all nodes are up", || all_up(&redlock)).await;
    let asked = || cluster.iter().map(|node| vault.asked(node)).sum::<usize>();
    let before = asked();
    for (place, node) in cluster.iter().enumerate() {
        set_password(node, user(place), 1);
    }
    lease.extend(ms(60_000)).await.expect("the connections are still open");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    assert_eq!(asked(), before);
    // A check opens its own connections and therefore requests credentials.
    let checked = redlock.check().await.expect("the client is open");
    assert!(checked.iter().all(|node| node.to_string().contains("WRONGPASS")), "{checked:?}");
    assert_eq!(asked(), before + 3);
    for (place, node) in cluster.iter().enumerate() {
        vault.put(node, credentials(place, 1));
    }
    let checked = redlock.check().await.expect("the client is open");
    assert!(checked.iter().all(|node| node.version().is_some()), "{checked:?}");
}

#[tokio::test]
async fn credentials_replace_the_login_of_a_url_but_not_its_database() {
    let cluster = Cluster::start_with(3, &Server::builder().password(ROOT));
    let vault = Vault::default();
    for (place, node) in cluster.iter().enumerate() {
        set_password(node, user(place), 0);
        vault.put(node, credentials(place, 0));
    }
    let urls = cluster.iter().map(|node| format!("redis://nobody:wrong@{}/7", node.addr()));
    let builder = Redlock::builder().nodes(urls).node_timeout(ms(1_000));
    let redlock = with(builder, &vault);
    let lease = redlock.acquire("r").wait(SOON).await.expect("the credentials are valid");
    let in_seven = |node: &Server| node.info("keyspace").contains_key("db7");
    assert!(cluster.iter().filter(|node| in_seven(node)).count() >= 2);
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum CallbackBehaviour {
    Fails,
    Panics,
    PanicsAtOnce,
    Hangs,
    Answers,
}

#[tokio::test]
async fn failing_credentials_callback_is_reported_and_retried() {
    let cluster = Cluster::start_with(3, &Server::builder().password(ROOT));
    let odd = name(&cluster[0]);
    for (behaviour, reason) in [
        (CallbackBehaviour::Fails, "no credentials: the vault is sealed"),
        (CallbackBehaviour::Panics, "no credentials: the callback panicked"),
        (CallbackBehaviour::PanicsAtOnce, "no credentials: the callback panicked"),
        (CallbackBehaviour::Hangs, "no credentials: no result within 300ms"),
    ] {
        let current = Arc::new(Mutex::new(behaviour));
        let asked = Arc::new(AtomicUsize::new(0));
        let (shared, odd, count) = (current.clone(), odd.clone(), asked.clone());
        let ask = move |node: String| {
            let behaviour = if node == odd {
                *shared.lock().expect("no panic")
            } else {
                CallbackBehaviour::Answers
            };
            count.fetch_add(usize::from(node == odd), Ordering::Relaxed);
            assert!(behaviour != CallbackBehaviour::PanicsAtOnce, "the password is {ROOT}");
            async move {
                match behaviour {
                    CallbackBehaviour::Fails => Err(format!("\nthe vault is sealed\nby {ROOT}")),
                    CallbackBehaviour::Hangs => std::future::pending().await,
                    CallbackBehaviour::Answers => Ok(Credentials::password(ROOT)),
                    CallbackBehaviour::Panics | CallbackBehaviour::PanicsAtOnce => {
                        panic!("the password is {ROOT}")
                    }
                }
            }
        };
        let builder = builder(&cluster).connect_timeout(ms(300)).credentials(ask);
        assert!(!format!("{builder:?}").contains(ROOT));
        let redlock = builder.build().expect("valid settings");
        let lease = redlock.acquire("r").wait(SOON).await.expect("two nodes are up");
        let is_reported = || state(&redlock, 0).to_string() == format!("down: {reason}");
        eventually(&format!("{behaviour:?}: {reason}"), is_reported).await;
        let checked = redlock.check().await.expect("the client is open");
        assert!(checked[0].to_string().contains(reason), "{checked:?}");
        assert!(checked[1].version().is_some(), "{checked:?}");
        let before = asked.load(Ordering::Relaxed);
        let is_asked = || asked.load(Ordering::Relaxed) > before + 1;
        eventually("the callback is called again", is_asked).await;
        let shown = format!("{redlock:?} {:?} {}", redlock.nodes(), lease.report());
        assert!(!shown.contains(ROOT), "{shown}");

        *current.lock().expect("no panic") = CallbackBehaviour::Answers;
        eventually("the node is up", || is_up(&redlock, 0)).await;
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "{behaviour:?}");
        redlock.close().await.expect("nodes are up");
    }
}
