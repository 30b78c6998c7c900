//! Checks the start, stop, kill and restart of a `Server`, and its settings.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use kit::{Server, TlsFiles, eventually};
use redis::Value;

/// The time after which a waiting test fails. It is long enough for a busy machine.
const LIMIT: Duration = Duration::from_mins(1);
/// How long a test waits to check that no reply arrives.
const QUIET: Duration = Duration::from_millis(200);

fn query<T: redis::FromRedisValue>(url: &str, args: &[&str]) -> redis::RedisResult<T> {
    let mut connection = redis::Client::open(url)?.get_connection()?;
    connection.set_read_timeout(Some(LIMIT))?;
    redis::cmd(args[0]).arg(&args[1..]).query(&mut connection)
}

#[test]
fn server_replies_on_its_port() {
    let server = Server::start();
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    assert_eq!(query::<String>(&server.url(), &["PING"]).unwrap(), "PONG");
    assert_eq!(server.info("server")["process_id"], server.pid().to_string());
    assert_eq!(server.info("server")["tcp_port"], server.port().to_string());
    assert!(server.is_running());
    assert!(server.log().contains("Ready to accept connections"));
}

#[test]
fn server_can_be_inspected() {
    let server = Server::start();
    assert_eq!(server.get("k"), None);
    assert_eq!(server.pttl("k"), -2);
    server.set("k", b"\x00\xff");
    assert_eq!(server.get("k"), Some(vec![0, 255]));
    assert_eq!(server.pttl("k"), -1);
    assert_eq!(server.cmd(&["PEXPIRE", "k", "100000"]), Value::Int(1));
    assert!((1..=100_000).contains(&server.pttl("k")));
    server.set("j", "");
    assert_eq!(server.keys(), [b"j", b"k"]);
    assert!(server.del("j"));
    assert!(!server.del("j"));
    let error = server.try_cmd(&["INCR", "k"]).unwrap_err();
    assert!(error.to_string().contains("not an integer"), "{error}");
    server.flushall();
    assert!(server.keys().is_empty());
}

#[test]
fn stopped_server_accepts_but_replies_only_after_cont() {
    let server = Server::start();
    server.stop();
    server.stop();
    assert!(server.is_stopped());
    assert!(server.is_running());
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    stream.set_read_timeout(Some(QUIET)).unwrap();
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).unwrap_err();
    server.cont();
    assert!(!server.is_stopped());
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
}

#[test]
fn restarted_server_is_empty_and_keeps_its_port() {
    let server = Server::start();
    let (pid, port) = (server.pid(), server.port());
    server.set("k", "v");
    server.kill();
    server.kill();
    assert!(!server.is_running());
    TcpStream::connect(server.addr()).unwrap_err();
    server.restart();
    assert_eq!(server.get("k"), None);
    assert_ne!(server.pid(), pid);
    assert_eq!(server.port(), port);
    assert_eq!(server.info("server")["tcp_port"], port.to_string());
}

#[test]
fn restarted_durable_server_keeps_its_data() {
    let server = Server::builder().durable().start();
    server.set("k", "v");
    // `restart` also accepts a running or stopped server.
    server.restart();
    assert_eq!(server.get("k"), Some(b"v".to_vec()));
    server.stop();
    server.restart();
    assert_eq!(server.get("k"), Some(b"v".to_vec()));
}

#[test]
fn durable_server_without_its_disk_restarts_empty() {
    let server = Server::builder().durable().start();
    for round in 0..2 {
        server.set("k", "v");
        server.lose_disk();
        assert!(!server.is_running());
        server.restart();
        assert_eq!(server.get("k"), None, "round {round}");
    }
    server.set("k", "v");
    server.restart();
    assert_eq!(server.get("k"), Some(b"v".to_vec()), "the server is still durable");
}

#[test]
fn server_with_connected_clients_restarts_repeatedly() {
    let server = Server::start();
    for _ in 0..10 {
        // The server closes these connections first, so they remain in TIME_WAIT.
        let _clients: Vec<_> =
            (0..10).map(|_| TcpStream::connect(server.addr()).unwrap()).collect();
        server.set("k", "v");
        server.restart();
        assert!(server.keys().is_empty());
    }
}

#[test]
fn server_that_ended_by_itself_is_not_running() {
    let server = Server::start();
    server.try_cmd(&["SHUTDOWN", "NOSAVE"]).unwrap_err();
    eventually(LIMIT, "the server has ended", || !server.is_running());
    assert!(catch_unwind(AssertUnwindSafe(|| server.stop())).is_err());
    server.restart();
    assert!(server.is_running());
}

#[test]
fn additional_arguments_are_applied() {
    let server = Server::builder().arg("--maxmemory").arg("1mb").databases(3).start();
    let setting = |name: &str| server.cmd(&["CONFIG", "GET", name]);
    let bulk = |text: &str| Value::BulkString(text.into());
    assert_eq!(setting("maxmemory"), Value::Array(vec![bulk("maxmemory"), bulk("1048576")]));
    assert_eq!(setting("databases"), Value::Array(vec![bulk("databases"), bulk("3")]));
    assert_eq!(setting("save"), Value::Array(vec![bulk("save"), bulk("")]));
}

#[test]
fn environment_variables_are_applied() {
    // With a process title, `redis-server` overwrites the memory that contains its environment.
    let server =
        Server::builder().env("TZ", "Antarctica/Troll").arg("--set-proc-title").arg("no").start();
    let environment = Path::new("/proc").join(server.pid().to_string()).join("environ");
    if cfg!(target_os = "linux") {
        let environment = std::fs::read_to_string(environment).unwrap();
        assert!(environment.split('\0').any(|variable| variable == "TZ=Antarctica/Troll"));
    }
}

#[test]
fn bad_argument_is_a_panic_with_the_log() {
    let panic =
        catch_unwind(|| Server::builder().arg("--no-such-option").arg("1").start()).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("no-such-option"), "{message}");
}

#[test]
fn password_is_required() {
    let server = Server::builder().password("p@ss:w/d %").start();
    let error = query::<String>(&server.url(), &["PING"]).unwrap_err();
    assert!(
        error.to_string().contains("NOAUTH") || error.to_string().contains("Authentication"),
        "{error}"
    );
    assert_eq!(query::<String>(&server.url_with_auth(), &["PING"]).unwrap(), "PONG");
    server.set("k", "v");
    assert_eq!(server.get("k"), Some(b"v".to_vec()));
    server.restart();
    assert_eq!(query::<String>(&server.url_with_auth(), &["PING"]).unwrap(), "PONG");
}

#[test]
fn added_user_has_all_permissions() {
    let server = Server::builder().user("alice", "wonder land").password("other").start();
    let url = server.url_with_auth();
    assert!(url.starts_with("redis://alice:wonder%20land@127.0.0.1:"), "{url}");
    assert_eq!(query::<String>(&url, &["ACL", "WHOAMI"]).unwrap(), "alice");
    query::<()>(&url, &["SET", "k", "v"]).unwrap();
    query::<()>(&url, &["PUBLISH", "channel", "v"]).unwrap();
    query::<()>(&url, &["CONFIG", "SET", "maxmemory", "1mb"]).unwrap();
    query::<()>(&server.url(), &["PING"]).unwrap_err();
    assert_eq!(server.get("k"), Some(b"v".to_vec()));
}

#[test]
fn server_listens_on_a_unix_socket() {
    let server = Server::builder().unix_socket().start();
    assert_eq!(query::<String>(&server.url_unix(), &["PING"]).unwrap(), "PONG");
    server.restart();
    assert_eq!(query::<String>(&server.url_unix(), &["PING"]).unwrap(), "PONG");
}

#[test]
fn dropped_server_removes_its_directory() {
    let server = Server::builder().durable().start();
    let Value::Array(setting) = server.cmd(&["CONFIG", "GET", "dir"]) else {
        panic!("not an array");
    };
    let dir: String = redis::from_redis_value(setting[1].clone()).unwrap();
    assert!(Path::new(&dir).is_dir());
    drop(server);
    assert!(!Path::new(&dir).exists());
}

/// Requires `openssl` to create a certificate and as a TLS client.
#[test]
fn server_accepts_tls_connections() {
    if !Server::builder().supports_tls() {
        println!("skipped: this server was built without TLS");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .stderr(Stdio::null())
        .status();
    if !made.is_ok_and(|status| status.success()) {
        println!("skipped: no openssl");
        return;
    }
    let server =
        Server::builder().tls(TlsFiles { ca: cert.clone(), cert: cert.clone(), key }).start();
    let addr = server.url_tls().replace("rediss://", "");
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-verify_return_error", "-CAfile"])
        .arg(&cert)
        .args(["-connect", &addr])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    client.stdin.as_mut().unwrap().write_all(b"PING\r\nQUIT\r\n").unwrap();
    let output = client.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "+PONG\r\n+OK\r\n");
}
