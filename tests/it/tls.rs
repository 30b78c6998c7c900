//! Tests of nodes that are connected over TLS.

use crate::{SOON, eventually, is_down, is_up, ms};
use kit::{Rerun, Server, ServerBuilder, TlsFiles};
use quorlock::{
    AcquireError, Builder, ConfigError, NodeFailure, NodeVote, Redlock, ReleaseOutcome,
};
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

/// The environment variable that passes the node's URL to the child process.
const URL: &str = "QUORLOCK_TEST_TLS_NODE";

fn builder() -> Builder {
    Redlock::builder().node_timeout(ms(1_000)).ttl(ms(30_000))
}

fn certificate(names: &[&str]) -> CertifiedKey<KeyPair> {
    let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    generate_simple_self_signed(names).expect("a certificate")
}

/// Returns settings of a server that presents `own` and trusts `clients`. Returns `None` if the installed server was
/// built without TLS.
fn server(
    dir: &Path,
    own: &CertifiedKey<KeyPair>,
    clients: &CertifiedKey<KeyPair>,
) -> Option<ServerBuilder> {
    if !Server::builder().supports_tls() {
        eprintln!("skipped: this server was built without TLS");
        return None;
    }
    let [cert, key, ca] = ["cert.pem", "key.pem", "ca.pem"].map(|name| dir.join(name));
    fs::write(&cert, own.cert.pem()).expect("a writable directory");
    fs::write(&key, own.signing_key.serialize_pem()).expect("a writable directory");
    fs::write(&ca, clients.cert.pem()).expect("a writable directory");
    Some(Server::builder().tls(TlsFiles { cert, key, ca }))
}

fn trusting(root: &CertifiedKey<KeyPair>) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let mut roots = RootCertStore::empty();
    roots.add(root.cert.der().clone()).expect("a certificate");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    config
        .with_safe_default_protocol_versions()
        .expect("the provider supports them")
        .with_root_certificates(roots)
}

/// Returns a client configuration that trusts `root` and presents `own` to servers that require a client certificate.
fn presenting(root: &CertifiedKey<KeyPair>, own: &CertifiedKey<KeyPair>) -> ClientConfig {
    let chain: Vec<CertificateDer<'static>> = vec![own.cert.der().clone()];
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).expect("a key");
    trusting(root).with_client_auth_cert(chain, key).expect("the key belongs to the certificate")
}

async fn lock_and_release(redlock: &Redlock, server: &Server) {
    let lease = redlock.acquire("r").wait(SOON).await.expect("the lock is free");
    assert!(server.get("r").is_some(), "the key exists");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "the node is up");
    assert!(server.get("r").is_none());
}

/// Builds a client and returns the reason why its only node is unreachable.
async fn failure(builder: Builder) -> String {
    let redlock = builder.build().expect("valid settings");
    let refused = redlock.try_acquire("r").await.expect_err("no connection");
    let AcquireError::NoQuorum { report } = &refused else { panic!("{refused:?}") };
    let NodeVote::Failed(NodeFailure::Unreachable(why)) = report.nodes()[0].vote() else {
        panic!("{report}")
    };
    why.to_string()
}

#[tokio::test]
async fn lock_over_tls_with_given_roots_by_name_and_address() {
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
        let redlock = redlock.build().expect("valid settings");
        lock_and_release(&redlock, &server).await;
        let checks = redlock.check().await.expect("the client is open");
        assert!(
            checks[0].version().is_some(),
            "the check uses the same TLS settings: {}",
            checks[0]
        );
    }
}

#[tokio::test]
async fn client_certificate_is_presented_on_every_connection() {
    let dir = tempfile::tempdir().expect("a directory");
    let [own, client, other] =
        [&["127.0.0.1"], &["client"], &["other"]].map(|names| certificate(names));
    let Some(server) = server(dir.path(), &own, &client) else { return };
    let server = server.arg("--tls-auth-clients").arg("yes").start();
    let url = server.url_tls();
    let redlock =
        builder().nodes([&url]).tls(presenting(&own, &client)).build().expect("valid settings");
    for _ in 0..3 {
        lock_and_release(&redlock, &server).await;
        server.cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
        eventually("the node is up", || is_up(&redlock, 0)).await;
    }
    for config in [trusting(&own).with_no_client_auth(), presenting(&own, &other)] {
        let why = failure(builder().nodes([&url]).tls(config)).await;
        // A server that closes the connection immediately may not deliver its alert.
        let reasons = ["received fatal alert", "reset by peer", "broken pipe"];
        assert!(reasons.iter().any(|reason| why.contains(reason)), "{why}");
    }
    assert!(server.get("r").is_none());
}

#[tokio::test]
async fn untrusted_certificate_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let own = certificate(&["127.0.0.1"]);
    let Some(server) = server(dir.path(), &own, &own) else { return };
    let server = server.start();
    let url = server.url_tls();
    // The client trusts the system's roots first, and then another root.
    let another = trusting(&certificate(&["127.0.0.1"])).with_no_client_auth();
    for builder in [builder(), builder().tls(another)] {
        let why = failure(builder.nodes([&url])).await;
        assert!(why.starts_with("invalid peer certificate"), "{why}");
    }
    // The certificate belongs to another host name.
    let elsewhere = url.replace("127.0.0.1", "localhost");
    let config = trusting(&own).with_no_client_auth();
    let why = failure(builder().nodes([elsewhere]).tls(config)).await;
    assert!(why.starts_with("invalid peer certificate"), "{why}");
    assert!(why.contains("localhost"), "{why}");
    assert!(server.get("r").is_none());
    assert!(CryptoProvider::get_default().is_none(), "the library installs no default provider");
}

#[tokio::test]
async fn insecure_url_is_refused() {
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

fn with_files(dir: &Path, root: &CertifiedKey<KeyPair>, own: &CertifiedKey<KeyPair>) -> Builder {
    let [ca, cert, key] = ["roots.pem", "client.pem", "client.key"].map(|name| dir.join(name));
    fs::write(&ca, root.cert.pem()).expect("a writable directory");
    fs::write(&cert, own.cert.pem()).expect("a writable directory");
    fs::write(&key, own.signing_key.serialize_pem()).expect("a writable directory");
    builder().tls_ca_cert_file(ca).tls_cert_file(cert).tls_key_file(key)
}

#[tokio::test]
async fn certificate_files_are_read_for_each_connection() {
    let dir = tempfile::tempdir().expect("a directory");
    let [own, client, other] =
        [&["127.0.0.1"], &["client"], &["other"]].map(|names| certificate(names));
    let Some(server) = server(dir.path(), &own, &client) else { return };
    let server = server.arg("--tls-auth-clients").arg("yes").start();
    let builder = with_files(dir.path(), &own, &client).nodes([server.url_tls()]);
    let redlock = builder.clone().build().expect("valid settings");
    lock_and_release(&redlock, &server).await;

    // The test replaces the certificate by one that the server does not trust, and then restores it.
    let _ = with_files(dir.path(), &own, &other);
    server.cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
    eventually("the node refuses the certificate", || is_down(&redlock, 0)).await;
    let _ = with_files(dir.path(), &own, &client);
    eventually("the node is up", || is_up(&redlock, 0)).await;
    lock_and_release(&redlock, &server).await;

    // If `tls` and certificate files are both set, the last setting applies.
    let refused = builder.clone().tls(trusting(&client).with_no_client_auth());
    assert!(failure(refused).await.starts_with("invalid peer certificate"));
    let path = dir.path().join("roots.pem");
    let by_file = builder.tls(trusting(&client).with_no_client_auth()).tls_ca_cert_file(path);
    assert!(!failure(by_file).await.contains("invalid peer certificate"));
}

#[test]
fn unusable_certificate_files_are_refused() {
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
    for (builder, missing) in [
        (plain().tls_cert_file(&cert), "tls_key_file"),
        (plain().tls_key_file(&key), "tls_cert_file"),
    ] {
        let refused = builder.build().expect_err("one of the two files is missing");
        assert_eq!(refused, ConfigError::IncompleteTlsFiles { missing });
    }
}

/// Checks the error if the URL of a server without TLS has the scheme `rediss`. The error depends on the random bytes
/// of the TLS handshake: if they contain a line end, the server replies; otherwise it waits for more bytes.
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
    let expected =
        "closed by the server without a reply to HELLO 3; if it speaks TLS, use rediss://";
    let client = || builder().connect_timeout(SOON).nodes([&url]);
    assert_eq!(failure(client()).await, expected);
    let redlock = client().build().expect("valid settings");
    let nodes = redlock.check().await.expect("the client is open");
    assert!(nodes[0].to_string().contains(expected), "{}", nodes[0]);
}

#[test]
fn system_roots_are_read_when_connecting() {
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
#[ignore = "runs in a process that a test starts, with other roots"]
async fn locks_with_the_systems_roots() {
    let Ok(url) = env::var(URL) else { return };
    let roots = env::var("SSL_CERT_FILE").expect("set by the parent");
    let builder = builder().connect_timeout(SOON).nodes([&url]);
    let redlock = builder.build().expect("valid settings");
    let refused = redlock.try_acquire("r").await.expect_err("there are no roots");
    // The error must name the missing roots file, not report an unreachable server.
    let shown = refused.to_string();
    assert!(!shown.contains("refused") && shown.contains("roots.pem"), "{shown}");
    fs::copy(Path::new(&roots).with_file_name("cert.pem"), &roots).expect("a writable directory");
    let lease = redlock.acquire("r").wait(SOON).await.expect("the roots file exists now");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "the node is up");
    assert!(CryptoProvider::get_default().is_none(), "the library installs no default provider");
}
