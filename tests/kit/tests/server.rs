//! A server starts, stops, continues, dies and comes back.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use kit::{Server, TlsFiles, eventually};
use redis::Value;

/// Bounds the wait of a test that fails; the machine may be busy.
const LIMIT: Duration = Duration::from_mins(1);
/// How long nothing must happen, where that is what is tested.
const QUIET: Duration = Duration::from_millis(200);

fn query<T: redis::FromRedisValue>(url: &str, args: &[&str]) -> redis::RedisResult<T> {
    let mut connection = redis::Client::open(url)?.get_connection()?;
    connection.set_read_timeout(Some(LIMIT))?;
    redis::cmd(args[0]).arg(&args[1..]).query(&mut connection)
}

#[test]
fn answers_on_its_port_with_its_own_process() {
    let server = Server::start();
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    assert_eq!(query::<String>(&server.url(), &["PING"]).unwrap(), "PONG");
    assert_eq!(server.info("server")["process_id"], server.pid().to_string());
    assert_eq!(server.info("server")["tcp_port"], server.port().to_string());
    assert!(server.is_running());
    assert!(server.log().contains("Ready to accept connections"));
}

#[test]
fn looks_inside() {
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
fn a_stopped_server_accepts_but_does_not_answer_until_continued() {
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
fn comes_back_empty_on_the_same_port() {
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
fn a_durable_server_comes_back_with_its_data() {
    let server = Server::builder().durable().start();
    server.set("k", "v");
    // Restarts what is running, too, and what is stopped.
    server.restart();
    assert_eq!(server.get("k"), Some(b"v".to_vec()));
    server.stop();
    server.restart();
    assert_eq!(server.get("k"), Some(b"v".to_vec()));
}

#[test]
fn a_durable_server_that_lost_its_disk_comes_back_empty() {
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
    assert_eq!(server.get("k"), Some(b"v".to_vec()), "it is still durable");
}

#[test]
fn restarts_again_and_again_with_clients_connected() {
    let server = Server::start();
    for _ in 0..10 {
        // The server's side of these connections is closed first: they stay behind in TIME_WAIT.
        let _clients: Vec<_> =
            (0..10).map(|_| TcpStream::connect(server.addr()).unwrap()).collect();
        server.set("k", "v");
        server.restart();
        assert!(server.keys().is_empty());
    }
}

#[test]
fn notices_a_server_that_ended_by_itself() {
    let server = Server::start();
    server.try_cmd(&["SHUTDOWN", "NOSAVE"]).unwrap_err();
    eventually(LIMIT, "the server has ended", || !server.is_running());
    assert!(catch_unwind(AssertUnwindSafe(|| server.stop())).is_err());
    server.restart();
    assert!(server.is_running());
}

#[test]
fn takes_further_arguments() {
    let server = Server::builder().arg("--maxmemory").arg("1mb").databases(3).start();
    let setting = |name: &str| server.cmd(&["CONFIG", "GET", name]);
    let bulk = |text: &str| Value::BulkString(text.into());
    assert_eq!(setting("maxmemory"), Value::Array(vec![bulk("maxmemory"), bulk("1048576")]));
    assert_eq!(setting("databases"), Value::Array(vec![bulk("databases"), bulk("3")]));
    assert_eq!(setting("save"), Value::Array(vec![bulk("save"), bulk("")]));
}

#[test]
fn takes_environment_variables() {
    // With a process title, redis-server writes over the memory that shows its environment.
    let server =
        Server::builder().env("TZ", "Antarctica/Troll").arg("--set-proc-title").arg("no").start();
    let environment = Path::new("/proc").join(server.pid().to_string()).join("environ");
    if cfg!(target_os = "linux") {
        let environment = std::fs::read_to_string(environment).unwrap();
        assert!(environment.split('\0').any(|variable| variable == "TZ=Antarctica/Troll"));
    }
}

#[test]
fn a_bad_argument_is_a_panic_with_the_log() {
    let panic =
        catch_unwind(|| Server::builder().arg("--no-such-option").arg("1").start()).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("no-such-option"), "{message}");
}

#[test]
fn a_password_is_required() {
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
fn a_user_may_do_everything() {
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
fn listens_on_a_unix_socket() {
    let server = Server::builder().unix_socket().start();
    assert_eq!(query::<String>(&server.url_unix(), &["PING"]).unwrap(), "PONG");
    server.restart();
    assert_eq!(query::<String>(&server.url_unix(), &["PING"]).unwrap(), "PONG");
}

#[test]
fn removes_its_directory() {
    let server = Server::builder().durable().start();
    let Value::Array(setting) = server.cmd(&["CONFIG", "GET", "dir"]) else {
        panic!("not an array");
    };
    let dir: String = redis::from_redis_value(setting[1].clone()).unwrap();
    assert!(Path::new(&dir).is_dir());
    drop(server);
    assert!(!Path::new(&dir).exists());
}

/// Needs `openssl`, for a certificate and as a client that speaks TLS.
#[test]
fn speaks_tls() {
    if !Server::builder().knows_tls() {
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
