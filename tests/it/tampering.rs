//! A proxy that reads commands and changes what becomes of them: a server or proxy of another make.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// How a command is treated.
pub(crate) enum Fate {
    Pass,
    /// The connection is closed without an answer.
    Close,
    /// It is not forwarded, and answered by these bytes.
    Answer(&'static str),
    /// It is answered by a string without an end.
    Flood,
}

/// Decides by the words of a command.
type Decide = dyn Fn(&[String]) -> Fate + Send + Sync;

pub(crate) struct Tamper {
    pub(crate) url: String,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Tamper {
    pub(crate) fn start(
        server: SocketAddr,
        decide: impl Fn(&[String]) -> Fate + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("redis://{}", listener.local_addr().expect("it listens"));
        let streams = Arc::<Mutex<Vec<TcpStream>>>::default();
        let (accepted, decide) = (streams.clone(), Arc::<Decide>::from(Box::new(decide) as Box<_>));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(server) else { continue };
                for stream in [&client, &server] {
                    stream.set_nodelay(true).expect("a socket");
                    accepted.lock().expect("no panic").push(copy(stream));
                }
                let (fates, expected) = channel();
                let (to, from) = (copy(&client), copy(&server));
                thread::spawn(move || pass_replies(&from, &to, &expected));
                let decide = decide.clone();
                thread::spawn(move || pass_commands(&client, &server, &*decide, &fates));
            }
        });
        Self { url, streams }
    }

    /// Closes all connections. New ones can be made.
    pub(crate) fn cut(&self) {
        self.streams.lock().expect("no panic").drain(..).for_each(|stream| close(&stream));
    }
}

impl Drop for Tamper {
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

fn pass_commands(
    client: &TcpStream,
    mut server: &TcpStream,
    decide: &Decide,
    fates: &Sender<Fate>,
) {
    let mut requests = BufReader::new(client);
    while let Some(frame) = frame(&mut requests) {
        let fate = decide(&words(&frame));
        if matches!(fate, Fate::Close) {
            break;
        }
        // A command that is answered here keeps its place: PING has a reply of the server.
        let frame = if let Fate::Answer(_) = fate { b"*1\r\n$4\r\nPING\r\n".into() } else { frame };
        if fates.send(fate).is_err() || server.write_all(&frame).is_err() {
            break;
        }
    }
    close(client);
    close(server);
}

fn pass_replies(server: &TcpStream, mut client: &TcpStream, expected: &Receiver<Fate>) {
    let mut replies = BufReader::new(server);
    while let Some(reply) = frame(&mut replies) {
        let fate = if reply.starts_with(b">") { Ok(Fate::Pass) } else { expected.recv() };
        let passed = match fate {
            Ok(Fate::Pass | Fate::Close) => client.write_all(&reply),
            Ok(Fate::Answer(answer)) => client.write_all(answer.as_bytes()),
            Ok(Fate::Flood) => {
                let begun = client.write_all(b"$536870912\r\n");
                let part = vec![b'x'; 1 << 16];
                (0..1 << 13).try_fold((), |(), _| client.write_all(&part)).and(begun)
            }
            Err(_) => break,
        };
        if passed.is_err() {
            break;
        }
    }
    close(client);
    close(server);
}

/// The next command or reply, as it came.
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

/// The words of a command.
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
