//! Tests of nodes with TLS. The certificate files come from options, variables or a settings file.

use crate::shell_session::ShellSession;
use kit::{Server, TlsFiles};
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

struct Pem {
    cert: PathBuf,
    key: PathBuf,
}

impl Pem {
    fn new(dir: &Path, name: &str) -> Self {
        let made = generate_simple_self_signed(["127.0.0.1".to_owned()]);
        let CertifiedKey { cert, signing_key }: CertifiedKey<KeyPair> =
            made.expect("a certificate");
        let [cert_file, key_file] =
            ["cert", "key"].map(|kind| dir.join(format!("{name}-{kind}.pem")));
        fs::write(&cert_file, cert.pem()).expect("it is written");
        fs::write(&key_file, signing_key.serialize_pem()).expect("it is written");
        Self { cert: cert_file, key: key_file }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[test]
fn certificate_files_come_from_options_variables_or_file() {
    let dir = TempDir::new().expect("a directory");
    let [own, client] = ["server", "client"].map(|name| Pem::new(dir.path(), name));
    if !Server::builder().supports_tls() {
        eprintln!("skipped: this server was built without TLS");
        return;
    }
    let files = TlsFiles { cert: own.cert.clone(), key: own.key, ca: client.cert.clone() };
    let server = Server::builder().tls(files).arg("--tls-auth-clients").arg("yes").start();
    let url = server.url_tls();
    let (ca, cert, key) = (text(&own.cert), text(&client.cert), text(&client.key));
    let session = ShellSession::default().with("QUORLOCK_RESTART_GUARD", "observed");
    let session = session.with("QUORLOCK_NODE_TIMEOUT", "2s");
    let session = session.with("QUORLOCK_CONNECT_TIMEOUT", "10s");
    let check =
        |session: &ShellSession, options: &[&str]| session.execute(&[&["check"], options].concat());
    let node = ["--node", &url];
    let all = ["--cacert", ca, "--cert", cert, "--key", key];
    let ended = check(&session, &[node, [all[0], all[1]]].concat());
    assert_eq!(ended.code, 69, "the server wants a certificate: {}{}", ended.out, ended.err);
    let ended = check(&session, &[&node[..], &all[2..]].concat());
    assert_eq!(ended.code, 69, "the system does not vouch for it: {}{}", ended.out, ended.err);
    assert!(ended.out.contains("invalid peer certificate"), "{}", ended.out);
    let ended = check(&session, &[&node[..], &all].concat());
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    let settings = dir.path().join("nodes.toml");
    let lines = format!("nodes = [{url:?}]\ntls_ca_cert_file = {ca:?}\ntls_cert_file = {cert:?}\n");
    fs::write(&settings, format!("{lines}tls_key_file = {key:?}\n")).expect("it is written");
    let ended = check(&session, &["--nodes-file", text(&settings)]);
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    let session = session.with("QUORLOCK_NODES", &url).with("QUORLOCK_TLS_CA_CERT_FILE", ca);
    let session = session.with("QUORLOCK_TLS_CERT_FILE", cert).with("QUORLOCK_TLS_KEY_FILE", key);
    let ended = session.execute(&["run", "r", "--", "/bin/true"]);
    assert_eq!((ended.code, &*ended.err), (0, ""));
    // The option overrides the variable.
    assert_eq!(check(&session, &["--cacert", cert]).code, 69);
}

#[test]
fn invalid_certificate_files_are_refused() {
    let dir = TempDir::new().expect("a directory");
    let [own, other] = ["own", "other"].map(|name| Pem::new(dir.path(), name));
    let empty = dir.path().join("empty.pem");
    fs::write(&empty, "topsecret").expect("it is written");
    let missing = dir.path().join("missing.pem");
    let mut session = ShellSession::default().with("QUORLOCK_NODES", "rediss://127.0.0.1:1");
    session.name("[DIR]", text(dir.path()));
    let (cert, key) = (text(&own.cert), text(&own.key));
    for options in [
        &["--cert", cert][..],
        &["--key", key],
        &["--cacert", text(&missing)],
        &["--cacert", text(&empty)],
        &["--cert", text(&missing), "--key", key],
        &["--cert", key, "--key", key],
        &["--cert", cert, "--key", text(&empty)],
        &["--cert", cert, "--key", cert],
        &["--cert", cert, "--key", text(&other.key)],
    ] {
        session.run(&[&["check"], options].concat());
    }
    session.run(&["torture", "--cacert", cert]);
    session.compare_with("tls-refused.txt");
}

#[test]
fn check_reports_a_wrong_scheme() {
    let dir = TempDir::new().expect("a directory");
    let own = Pem::new(dir.path(), "server");
    let plain = Server::start();
    let session = ShellSession::default().with("QUORLOCK_CONNECT_TIMEOUT", "1s");
    let session = session.with("QUORLOCK_NODES", &format!("rediss://{}", plain.addr()));
    let ended = session.execute(&["check", "--cacert", text(&own.cert)]);
    assert!(ended.out.contains("not speak TLS"), "{}", ended.out);
    if !Server::builder().supports_tls() {
        return;
    }
    let files = TlsFiles { cert: own.cert.clone(), key: own.key, ca: own.cert };
    let server = Server::builder().tls(files).start();
    let session = session.with("QUORLOCK_NODES", &server.url_tls().replace("rediss", "redis"));
    let ended = session.execute(&["run", "-n", "r", "--", "/bin/true"]);
    assert!(ended.err.contains("if it speaks TLS, use rediss://"), "{}", ended.err);
}
