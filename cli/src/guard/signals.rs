//! The signals that are sent to this process.

use crate::exit::{Code, Failure};
use rustix::process::{Signal, getpid, kill_process};
use std::fs;
use std::io;
use std::thread;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Those that end a process which does not care for them.
const ENDING: [Signal; 6] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];

/// Those of job control. A command in the foreground gets them from the terminal, as we do.
const STOPPING: [Signal; 2] = [Signal::TSTP, Signal::CONT];

/// Signals, in the order in which they come.
pub(crate) struct Signals {
    heard: UnboundedReceiver<Signal>,
    /// Keeps it open, and sends HUP when the standard input ends.
    sender: UnboundedSender<Signal>,
}

impl Signals {
    /// Listens from now on. What is ignored, as HUP is under nohup(1), stays so.
    pub(crate) fn listen(foreground: bool) -> Result<Self, Failure> {
        let (sender, heard) = unbounded_channel();
        let failed =
            |error| Failure::new(Code::FAILED, format!("cannot listen to signals: {error}"));
        // Where it is ignored, nobody is told how a child ended. Once it was listened to, it stays so.
        signal(SignalKind::child()).map(drop).map_err(failed)?;
        let ignored = ignored();
        let stopping = STOPPING.iter().filter(|_| !foreground);
        for kind in ENDING.iter().chain(stopping).copied() {
            if ignored & (1 << (kind.as_raw() - 1)) == 0 {
                hear(kind, sender.clone()).map_err(failed)?;
            }
        }
        Ok(Self { heard, sender })
    }

    /// From now on the end of the standard input counts as HUP. A thread reads and discards the input.
    pub(crate) fn hang_up_with_stdin(&self) {
        let sender = self.sender.clone();
        thread::spawn(move || {
            // An input that cannot be read has ended as well.
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            let _ = sender.send(Signal::HUP);
        });
    }

    /// The next one.
    ///
    /// # Cancel safety
    /// Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> Signal {
        match self.heard.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }

    /// The next one that is to end us; stops us and goes on as asked meanwhile.
    pub(crate) async fn end(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::TSTP => stop_ourselves(),
                Signal::CONT => {}
                ending => return ending,
            }
        }
    }
}

/// The exit code of who ends by it.
pub(crate) fn code(signal: Signal) -> Code {
    Code::of_signal(signal.as_raw().try_into().unwrap_or_default())
}

/// Stops this process until it gets CONT.
pub(super) fn stop_ourselves() {
    let _ = kill_process(getpid(), Signal::STOP);
}

fn hear(kind: Signal, sender: UnboundedSender<Signal>) -> io::Result<()> {
    let mut signals = signal(SignalKind::from_raw(kind.as_raw()))?;
    tokio::spawn(async move {
        while signals.recv().await.is_some() {
            if sender.send(kind).is_err() {
                break;
            }
        }
    });
    Ok(())
}

/// Which signals are ignored, as bits; none where that is not told (`/proc`, Linux).
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or_default()
}
