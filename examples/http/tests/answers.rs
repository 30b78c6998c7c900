//! What the handler answers, on real servers.

use kit::{Child, Cluster, Pipes};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;

/// Sends a request; the answer is read by [`answer`].
fn ask(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request =
        format!("POST /orders/42/pay HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

fn answer(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("text");
    text
}

#[test]
fn who_comes_second_is_told_409_and_without_a_quorum_503() {
    let nodes = Cluster::start(3);
    let program = env!("CARGO_BIN_EXE_quorlock-http");
    let (_server, pipes) = Child::spawn(Command::new(program).args(nodes.urls()));
    // The others stay open: it writes to its log.
    let Pipes { stdout, stdin: _stdin, stderr: _log } = pipes;
    let mut printed = BufReader::new(stdout).lines().map(|line| line.expect("text"));
    let listening = printed.next().expect("its address");
    let address = listening.rsplit(' ').next().expect("at its end");

    let first = ask(address);
    printed.find(|line| line.starts_with("charging")).expect("the first has the lock");
    let second = answer(ask(address));
    assert!(second.starts_with("HTTP/1.1 409") && second.contains("retry-after: "), "{second}");
    let first = answer(first);
    assert!(first.starts_with("HTTP/1.1 200") && first.contains("paid"), "{first}");

    nodes[0].stop();
    nodes[1].stop();
    let third = answer(ask(address));
    assert!(third.starts_with("HTTP/1.1 503"), "{third}");
}
