//! Tests of the handler's responses, with real Redis servers.

use kit::{Child, Cluster, Pipes};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;

/// Sends a request without reading the response.
fn request(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let head =
        format!("POST /orders/42/pay HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it reads");
    stream
}

fn response(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("text");
    text
}

#[test]
fn contended_request_gets_409_and_outage_gets_503() {
    let nodes = Cluster::start(3);
    let program = env!("CARGO_BIN_EXE_quorlock-http");
    let (_server, pipes) = Child::spawn(Command::new(program).args(nodes.urls()));
    // The other pipes stay open, because the program writes to its log.
    let Pipes { stdout, stdin: _stdin, stderr: _log } = pipes;
    let mut printed = BufReader::new(stdout).lines().map(|line| line.expect("text"));
    let listening = printed.next().expect("its address");
    let address = listening.rsplit(' ').next().expect("at its end");

    let first = request(address);
    printed.find(|line| line.starts_with("charging")).expect("the first has the lock");
    let second = response(request(address));
    assert!(second.starts_with("HTTP/1.1 409") && second.contains("retry-after: "), "{second}");
    let first = response(first);
    assert!(first.starts_with("HTTP/1.1 200") && first.contains("paid"), "{first}");

    nodes[0].stop();
    nodes[1].stop();
    let third = response(request(address));
    assert!(third.starts_with("HTTP/1.1 503"), "{third}");
}
