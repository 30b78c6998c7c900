//! Tests that no wait is silent or endless because of the nodes: outages are reported, and failures that only other
//! settings can end, end the wait.

use crate::running::{Running, lock};
use crate::shell_session::{Ended, ShellSession};
use kit::{Cluster, Server, TlsFiles};
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustix::process::Signal;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Each kind of wait. With `-w`, the wait would end after the limit of a test.
const WAITS: [&[&str]; 8] = [
    &["run", "r", "--", "/bin/true"],
    &["run", "-q", "-w", "10m", "r", "--", "/bin/true"],
    &["run", "--shared", "r", "--", "/bin/true"],
    &["run", "--permits", "2", "r", "--", "/bin/true"],
    &["run", "-q", "--every", "30d", "r", "--", "/bin/true"],
    &["run", "--every", "30d", "--take-over", "--fenced", "r", "--", "/bin/true"],
    &["hold", "-q", "r", "s"],
    &["lead", "-q", "r", "--", "/bin/true"],
];

/// Expects that each kind of wait ends with 69 and a line that contains `reason`.
#[track_caller]
fn assert_all_waits_end(session: &ShellSession, reason: &str) {
    let ended: Vec<Ended> = thread::scope(|scope| {
        let all: Vec<_> = WAITS.iter().map(|wait| scope.spawn(|| session.execute(wait))).collect();
        let ended = |(one, wait): (thread::ScopedJoinHandle<'_, Ended>, _)| {
            one.join().unwrap_or_else(|_| panic!("{wait:?} does not end with {reason:?}"))
        };
        all.into_iter().zip(WAITS).map(ended).collect()
    });
    for (wait, Ended { code, out, err }) in WAITS.iter().zip(ended) {
        assert_eq!((code, &*out), (69, ""), "{wait:?}: {err}");
        assert!(err.contains(reason), "{wait:?}: {err}");
        let is_quiet = wait.contains(&"-q");
        assert!(!is_quiet || !err.contains("waiting ("), "{wait:?}: {err}");
    }
}

fn on_urls(urls: &[String]) -> ShellSession {
    let session = ShellSession::on(&[]).with("QUORLOCK_NODES", &urls.join(" "));
    session.with("QUORLOCK_CONNECT_TIMEOUT", "2s")
}

#[test]
fn wrong_password_on_a_majority_ends_every_wait() {
    let nodes = Cluster::start_with(3, &Server::builder().password("right"));
    let mut urls: Vec<String> =
        nodes.iter().map(|node| node.url_with_auth().replace("right", "wrong")).collect();
    assert_all_waits_end(&on_urls(&urls), "WRONGPASS");
    let anonymous: Vec<String> = nodes.iter().map(Server::url).collect();
    assert_all_waits_end(&on_urls(&anonymous), "NOAUTH");

    // One node with a wrong password does not prevent a quorum.
    urls[1..].clone_from_slice(&[nodes[1].url_with_auth(), nodes[2].url_with_auth()]);
    let ended = on_urls(&urls).execute(WAITS[0]);
    assert_eq!((ended.code, &*ended.err), (0, ""));
}

#[test]
fn missing_permission_on_a_majority_ends_every_wait() {
    let (nodes, session) = ShellSession::start(3);
    for node in nodes.iter().take(2) {
        node.cmd(&["ACL", "SETUSER", "default", "resetkeys", "~other:*"]);
    }
    assert_all_waits_end(&session, "NOPERM");
}

#[test]
fn foreign_key_in_place_of_a_job_counter_ends_the_wait() {
    let (nodes, session) = ShellSession::start(3);
    for node in nodes.iter().take(2) {
        node.set("r#quorlock:period:{r}", "not a number");
    }
    let ended = session.execute(WAITS[4]);
    assert_eq!(ended.code, 69, "{}", ended.err);
    assert!(ended.err.contains("COUNTER"), "{}", ended.err);
}

#[test]
fn untrusted_certificate_and_wrong_scheme_end_every_wait() {
    let plain = Server::start();
    let no_tls = plain.url().replace("redis://", "rediss://");
    let message = format!("{} does not speak TLS: use redis://", plain.addr());
    assert_all_waits_end(&on_urls(&[no_tls]), &message);
    if !Server::builder().supports_tls() {
        eprintln!("skipped: this server was built without TLS");
        return;
    }
    let dir = TempDir::new().expect("a directory");
    let made = generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let CertifiedKey { cert, signing_key }: CertifiedKey<KeyPair> = made;
    let [cert_file, key_file] = ["cert.pem", "key.pem"].map(|name| dir.path().join(name));
    fs::write(&cert_file, cert.pem()).expect("it is written");
    fs::write(&key_file, signing_key.serialize_pem()).expect("it is written");
    let files = TlsFiles { cert: cert_file.clone(), key: key_file, ca: cert_file };
    let server = Server::builder().tls(files).start();
    assert_all_waits_end(&on_urls(&[server.url_tls()]), "invalid peer certificate");
    let plain_url = server.url_tls().replace("rediss://", "redis://");
    assert_all_waits_end(&on_urls(&[plain_url]), "speaks TLS: use rediss://");
}

/// With `-q`, an outage is one line after 30 s. Contention is not mentioned.
#[test]
fn quiet_waits_report_a_long_outage_once_and_no_contention() {
    let (held, session) = ShellSession::start(3);
    let (dead, outage) = ShellSession::start(3);
    held.iter().for_each(|node| {
        lock(node, "r", "0123456789abcdef0123456789abcdef:web-1:4711");
        node.cmd(&["PERSIST", "r"]);
    });
    dead[0].kill();
    dead[1].kill();
    let quiet: Vec<_> = WAITS.iter().filter(|wait| wait.contains(&"-q")).collect();
    let start = |session: &ShellSession| -> Vec<Running> {
        quiet.iter().map(|wait| Running::of(&mut session.command(wait))).collect()
    };
    let (contended, mut failing) = (start(&session), start(&outage));
    let begun = Instant::now();
    for (running, wait) in failing.iter_mut().zip(&quiet) {
        println!("{wait:?}");
        let line = running.error_line();
        assert!(begun.elapsed() >= Duration::from_secs(25), "{wait:?}: {line}");
        assert!(line.contains("waiting (3"), "{wait:?}: {line}");
        assert!(line.contains("no majority of the nodes is available ("), "{wait:?}: {line}");
    }
    thread::sleep(Duration::from_secs(5));
    for running in contended.into_iter().chain(failing) {
        running.send(Signal::TERM);
        let ended = running.end();
        assert_eq!((ended.code, &*ended.err), (143, ""));
    }
}
