//! Nodes that are spoken to over TLS.

use crate::{SOON, eventually, is_down, is_up, ms};
use kit::{Rerun, Server, ServerBuilder, TlsFiles};
use quorlock::{AcquireError, Builder, ConfigError, NodeFailure, NodeVote, Redlock};
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::client::WantsClientCert;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use std::env;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

/// What tells a child the node.
const URL: &str = "QUORLOCK_TEST_TLS_NODE";

fn builder() -> Builder {
    Redlock::builder().node_timeout(ms(1_000)).ttl(ms(30_000))
}

/// A certificate that vouches for itself and for `names`, with its key.
fn certificate(names: &[&str]) -> CertifiedKey<KeyPair> {
    let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    generate_simple_self_signed(names).expect("a certificate")
}

/// A server with this certificate, that trusts `clients`. None if servers here cannot do TLS.
fn server(
    dir: &Path,
    own: &CertifiedKey<KeyPair>,
    clients: &CertifiedKey<KeyPair>,
) -> Option<ServerBuilder> {
    if !Server::builder().knows_tls() {
        eprintln!("skipped: this server was built without TLS");
        return None;
    }
    let [cert, key, ca] = ["cert.pem", "key.pem", "ca.pem"].map(|name| dir.join(name));
    fs::write(&cert, own.cert.pem()).expect("a writable directory");
    fs::write(&key, own.signing_key.serialize_pem()).expect("a writable directory");
    fs::write(&ca, clients.cert.pem()).expect("a writable directory");
    Some(Server::builder().tls(TlsFiles { cert, key, ca }))
}

/// Trusts `root` alone.
fn trusting(root: &CertifiedKey<KeyPair>) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let mut roots = RootCertStore::empty();
    roots.add(root.cert.der().clone()).expect("a certificate");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    config.with_safe_default_protocol_versions().expect("it has them").with_root_certificates(roots)
}

/// Shows `own` to servers that ask.
fn showing(root: &CertifiedKey<KeyPair>, own: &CertifiedKey<KeyPair>) -> ClientConfig {
    let chain: Vec<CertificateDer<'static>> = vec![own.cert.der().clone()];
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).expect("a key");
    trusting(root).with_client_auth_cert(chain, key).expect("they fit together")
}

async fn lock_and_release(redlock: &Redlock, server: &Server) {
    let lease = redlock.acquire("r").wait(SOON).await.expect("a free lock");
    assert!(server.get("r").is_some(), "the key is where it belongs");
    lease.release().await.expect("the node is up");
    assert!(server.get("r").is_none());
}

/// Why the only node of `builder` cannot be reached.
async fn failure(builder: Builder) -> String {
    let redlock = builder.build().expect("good settings");
    let refused = redlock.try_acquire("r").await.expect_err("no connection");
    let AcquireError::NoQuorum { report } = &refused else { panic!("{refused:?}") };
    let NodeVote::Failed(NodeFailure::Unreachable(why)) = report.nodes()[0].vote() else {
        panic!("{report}")
    };
    why.to_string()
}

#[tokio::test]
async fn locks_over_tls_with_roots_of_ones_own_by_name_and_by_address() {
    let dir = tempfile::tempdir().expect("a directory");
    let own = certificate(&["127.0.0.1", "localhost", "::1"]);
    let Some(server) = server(dir.path(), &own, &own) else { return };
    let server = server.arg("--bind").arg("127.0.0.1").arg("-::1").start();
    let port = server.url_tls().rsplit(':').next().expect("a port").to_owned();
    let mut hosts = vec!["127.0.0.1", "localhost"];
    if TcpListener::bind("[::1]:0").is_ok() {
        hosts.push("[::1]");
    }
    let config = Arc::new(trusting(&own).with_no_client_auth());
    for host in hosts {
        let redlock = builder().nodes([format!("rediss://{host}:{port}")]).tls(config.clone());
        let redlock = redlock.build().expect("good settings");
        lock_and_release(&redlock, &server).await;
        let checks = redlock.check().await.expect("a client that works");
        assert!(checks[0].version().is_some(), "it is looked at the same way: {}", checks[0]);
    }
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_is_shown_ours_on_every_connection() {
    let dir = tempfile::tempdir().expect("a directory");
    let [own, ours, others] =
        [&["127.0.0.1"], &["client"], &["other"]].map(|names| certificate(names));
    let Some(server) = server(dir.path(), &own, &ours) else { return };
    let server = server.arg("--tls-auth-clients").arg("yes").start();
    let url = server.url_tls();
    let redlock = builder().nodes([&url]).tls(showing(&own, &ours)).build().expect("good settings");
    for _ in 0..3 {
        lock_and_release(&redlock, &server).await;
        server.cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
        eventually("it is back", || is_up(&redlock, 0)).await;
    }
    for config in [trusting(&own).with_no_client_auth(), showing(&own, &others)] {
        let why = failure(builder().nodes([&url]).tls(config)).await;
        // A server that closes the connection at once may take its reason with it.
        let is_told = ["received fatal alert", "reset by peer", "broken pipe"];
        assert!(is_told.iter().any(|told| why.contains(told)), "{why}");
    }
    assert!(server.get("r").is_none());
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let own = certificate(&["127.0.0.1"]);
    let Some(server) = server(dir.path(), &own, &own) else { return };
    let server = server.start();
    let url = server.url_tls();
    // By the system's roots, and by roots of another's.
    let another = trusting(&certificate(&["127.0.0.1"])).with_no_client_auth();
    for builder in [builder(), builder().tls(another)] {
        let why = failure(builder.nodes([&url])).await;
        assert!(why.starts_with("invalid peer certificate"), "{why}");
    }
    // And as that of somebody else.
    let elsewhere = url.replace("127.0.0.1", "localhost");
    let config = trusting(&own).with_no_client_auth();
    let why = failure(builder().nodes([elsewhere]).tls(config)).await;
    assert!(why.starts_with("invalid peer certificate"), "{why}");
    assert!(why.contains("localhost"), "{why}");
    assert!(server.get("r").is_none());
    assert!(CryptoProvider::get_default().is_none(), "the process has no provider from us");
}

#[tokio::test]
async fn no_server_is_trusted_blindly() {
    let dir = tempfile::tempdir().expect("a directory");
    let own = certificate(&["127.0.0.1"]);
    let Some(server) = server(dir.path(), &own, &own) else { return };
    let server = server.start();
    let config = trusting(&own).with_no_client_auth();
    let url = format!("{}#insecure", server.url_tls());
    for builder in [builder(), builder().tls(config)] {
        let refused = builder.nodes([&url]).build().expect_err("it has no certificate to trust");
        assert!(refused.to_string().contains("unexpected #"), "{refused}");
    }
}

/// A client with the certificates of these files, `own` to be shown.
fn with_files(dir: &Path, root: &CertifiedKey<KeyPair>, own: &CertifiedKey<KeyPair>) -> Builder {
    let [ca, cert, key] = ["roots.pem", "client.pem", "client.key"].map(|name| dir.join(name));
    fs::write(&ca, root.cert.pem()).expect("a writable directory");
    fs::write(&cert, own.cert.pem()).expect("a writable directory");
    fs::write(&key, own.signing_key.serialize_pem()).expect("a writable directory");
    builder().tls_ca_cert_file(ca).tls_cert_file(cert).tls_key_file(key)
}

#[tokio::test]
async fn certificate_files_are_read_again_for_each_connection() {
    let dir = tempfile::tempdir().expect("a directory");
    let [own, ours, others] =
        [&["127.0.0.1"], &["client"], &["other"]].map(|names| certificate(names));
    let Some(server) = server(dir.path(), &own, &ours) else { return };
    let server = server.arg("--tls-auth-clients").arg("yes").start();
    let builder = with_files(dir.path(), &own, &ours).nodes([server.url_tls()]);
    let redlock = builder.clone().build().expect("good settings");
    lock_and_release(&redlock, &server).await;

    // The certificate is replaced by one that the server does not trust, and put back.
    let _ = with_files(dir.path(), &own, &others);
    server.cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
    eventually("it is refused", || is_down(&redlock, 0)).await;
    let _ = with_files(dir.path(), &own, &ours);
    eventually("it is back", || is_up(&redlock, 0)).await;
    lock_and_release(&redlock, &server).await;

    // The setting that is made last counts.
    let refused = builder.clone().tls(trusting(&ours).with_no_client_auth());
    assert!(failure(refused).await.starts_with("invalid peer certificate"));
    let path = dir.path().join("roots.pem");
    let by_file = builder.tls(trusting(&ours).with_no_client_auth()).tls_ca_cert_file(path);
    assert!(!failure(by_file).await.contains("invalid peer certificate"));
}

#[test]
fn certificate_files_that_cannot_be_used_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let [own, other] = [&["a"], &["b"]].map(|names| certificate(names));
    let builder = with_files(dir.path(), &own, &own).nodes(["rediss://127.0.0.1:1"]);
    assert!(builder.clone().build().is_ok());
    let [cert, key] = ["client.pem", "client.key"].map(|name| dir.path().join(name));
    let [missing, empty, foreign] =
        ["missing", "empty", "foreign"].map(|name| dir.path().join(name));
    fs::write(&empty, "topsecret").expect("a writable directory");
    fs::write(&foreign, other.signing_key.serialize_pem()).expect("a writable directory");
    for (builder, setting) in [
        (builder.clone().tls_ca_cert_file(&missing), "tls_ca_cert_file"),
        (builder.clone().tls_ca_cert_file(&empty), "tls_ca_cert_file"),
        (builder.clone().tls_cert_file(&missing), "tls_cert_file"),
        (builder.clone().tls_cert_file(&key), "tls_cert_file"),
        (builder.clone().tls_key_file(&empty), "tls_key_file"),
        (builder.clone().tls_key_file(&cert), "tls_key_file"),
        (builder.clone().tls_key_file(&foreign), "tls_key_file"),
    ] {
        let refused = builder.build().expect_err("a file cannot be used");
        let ConfigError::BadTlsFile { setting: named, .. } = &refused else {
            panic!("{refused:?}")
        };
        assert_eq!(*named, setting, "{refused}");
        assert!(!refused.to_string().contains("topsecret"), "{refused}");
    }
    let plain = || Redlock::builder().nodes(["rediss://127.0.0.1:1"]);
    for (builder, lacking) in [
        (plain().tls_cert_file(&cert), "tls_key_file"),
        (plain().tls_key_file(&key), "tls_cert_file"),
    ] {
        let refused = builder.build().expect_err("one of two");
        assert_eq!(refused, ConfigError::IncompleteTlsFiles { missing: lacking });
    }
}

/// Redis replies to a handshake that has the end of a line, and waits for more bytes of any other.
#[tokio::test]
async fn rediss_url_of_plain_server_names_redis_scheme() {
    let server = Server::start();
    let url = format!("rediss://{}", server.addr());
    let config = trusting(&certificate(&["127.0.0.1"])).with_no_client_auth();
    for _ in 0..6 {
        let builder = builder().connect_timeout(ms(300)).nodes([&url]).tls(config.clone());
        let why = failure(builder).await;
        let silent = "timeout while connecting; if the server does not speak TLS, use redis://";
        assert!(why == silent || why == "the server does not speak TLS: use redis://", "{why}");
    }
}

#[tokio::test]
async fn redis_url_of_tls_server_names_rediss_scheme() {
    let dir = tempfile::tempdir().expect("a directory");
    let own = certificate(&["127.0.0.1"]);
    let Some(server) = server(dir.path(), &own, &own) else { return };
    let server = server.start();
    let url = server.url_tls().replace("rediss://", "redis://");
    let why = failure(builder().connect_timeout(SOON).nodes([url])).await;
    assert_eq!(
        why,
        "closed by the server without a reply to HELLO 3; if it speaks TLS, use rediss://"
    );
}

/// In a process of its own, for which the system's roots are others.
#[test]
fn the_systems_roots_are_trusted_as_they_are_when_the_connection_is_made() {
    let dir = tempfile::tempdir().expect("a directory");
    let own = certificate(&["127.0.0.1"]);
    let Some(server) = server(dir.path(), &own, &own) else { return };
    let server = server.start();
    let url = server.url_tls();
    let roots = dir.path().join("roots.pem");
    let roots = roots.to_str().expect("a path in UTF-8");
    let env = [(URL, url.as_str()), ("SSL_CERT_FILE", roots)];
    let test = "tls::locks_with_the_systems_roots";
    let rerun = Rerun::start(&["--ignored", "--exact", test, "--nocapture"], &env);
    rerun.finish(2 * SOON);
    assert!(rerun.output().contains("1 passed"), "{}", rerun.output());
}

#[tokio::test]
#[ignore = "run by a test, in a process with other roots"]
async fn locks_with_the_systems_roots() {
    let Ok(url) = env::var(URL) else { return };
    let roots = env::var("SSL_CERT_FILE").expect("it is set");
    let redlock = builder().nodes([&url]).build().expect("good settings");
    let refused = redlock.try_acquire("r").await.expect_err("there are no roots");
    // The file is not there: that is not a server that is not there.
    let shown = refused.to_string();
    assert!(!shown.contains("refused") && shown.contains("roots.pem"), "{shown}");
    fs::copy(Path::new(&roots).with_file_name("cert.pem"), &roots).expect("a writable directory");
    let lease = redlock.acquire("r").wait(SOON).await.expect("now they are there");
    lease.release().await.expect("the node is up");
    assert!(CryptoProvider::get_default().is_none(), "the process has no provider from us");
}
