//! A proxy that reads the commands of a client and can change or drop commands and replies, as a server or proxy of
//! another vendor might.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

pub(crate) enum Action {
    Pass,
    /// The proxy closes the connection without a reply.
    Close,
    /// The proxy replies with these bytes instead of the server's reply.
    Answer(&'static str),
    /// The proxy changes the server's reply with this function.
    Edit(fn(&str) -> String),
    /// The proxy replies with a very long string.
    Flood,
}

type Decide = dyn Fn(&[String]) -> Action + Send + Sync;

pub(crate) struct TamperingProxy {
    pub(crate) url: String,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl TamperingProxy {
    pub(crate) fn start(
        server: SocketAddr,
        decide: impl Fn(&[String]) -> Action + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("redis://{}", listener.local_addr().expect("the socket is bound"));
        let streams = Arc::<Mutex<Vec<TcpStream>>>::default();
        let (accepted, decide) = (streams.clone(), Arc::<Decide>::from(Box::new(decide) as Box<_>));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(server) else { continue };
                for stream in [&client, &server] {
                    stream.set_nodelay(true).expect("a socket");
                    accepted.lock().expect("no panic").push(copy(stream));
                }
                let (sender, expected) = channel();
                let (to, from) = (copy(&client), copy(&server));
                thread::spawn(move || forward_replies(&from, &to, &expected));
                let decide = decide.clone();
                thread::spawn(move || forward_commands(&client, &server, &*decide, &sender));
            }
        });
        Self { url, streams }
    }

    /// Closes all connections. Clients can open new ones.
    pub(crate) fn cut(&self) {
        self.streams.lock().expect("no panic").drain(..).for_each(|stream| close(&stream));
    }
}

impl Drop for TamperingProxy {
    fn drop(&mut self) {
        self.cut();
    }
}

fn copy(stream: &TcpStream) -> TcpStream {
    stream.try_clone().expect("a socket")
}

fn close(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Both);
}

fn forward_commands(
    client: &TcpStream,
    mut server: &TcpStream,
    decide: &Decide,
    sender: &Sender<Action>,
) {
    let mut requests = BufReader::new(client);
    while let Some(frame) = frame(&mut requests) {
        let action = decide(&words(&frame));
        if matches!(action, Action::Close) {
            break;
        }
        // If the proxy answers a command itself, it sends `PING` to the server in place of that command, so that
        // replies keep their order.
        let frame =
            if let Action::Answer(_) = action { b"*1\r\n$4\r\nPING\r\n".into() } else { frame };
        if sender.send(action).is_err() || server.write_all(&frame).is_err() {
            break;
        }
    }
    close(client);
    close(server);
}

fn forward_replies(server: &TcpStream, mut client: &TcpStream, expected: &Receiver<Action>) {
    let mut replies = BufReader::new(server);
    while let Some(reply) = frame(&mut replies) {
        let action = if reply.starts_with(b">") { Ok(Action::Pass) } else { expected.recv() };
        let written = match action {
            Ok(Action::Pass | Action::Close) => client.write_all(&reply),
            Ok(Action::Answer(answer)) => client.write_all(answer.as_bytes()),
            Ok(Action::Edit(edit)) => {
                client.write_all(edit(&String::from_utf8_lossy(&reply)).as_bytes())
            }
            Ok(Action::Flood) => {
                let started = client.write_all(b"$536870912\r\n");
                let part = vec![b'x'; 1 << 16];
                (0..1 << 13).try_fold((), |(), _| client.write_all(&part)).and(started)
            }
            Err(_) => break,
        };
        if written.is_err() {
            break;
        }
    }
    close(client);
    close(server);
}

fn frame(stream: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.read_until(b'\n', &mut bytes).ok().filter(|read| *read > 0)?;
    let line = String::from_utf8_lossy(&bytes).into_owned();
    let count = || line.get(1..).and_then(|rest| rest.trim().parse::<usize>().ok()).unwrap_or(0);
    let elements = match bytes[0] {
        b'$' | b'=' | b'!' if line.trim() != "$-1" => {
            let mut text = vec![0; count() + 2];
            stream.read_exact(&mut text).ok()?;
            bytes.extend(text);
            0
        }
        b'*' | b'~' | b'>' => count(),
        b'%' => 2 * count(),
        _ => 0,
    };
    for _ in 0..elements {
        bytes.extend(frame(stream)?);
    }
    Some(bytes)
}

fn words(command: &[u8]) -> Vec<String> {
    let mut rest = command;
    let mut words = Vec::new();
    let _ = rest.read_until(b'\n', &mut Vec::new());
    while let Some(word) = frame(&mut rest) {
        let text = String::from_utf8_lossy(&word);
        let text = text.split_once("\r\n").map(|(_, text)| text.trim_end().to_owned());
        words.push(text.unwrap_or_default());
    }
    words
}
