//! Handles the signals that quorlock receives.

use crate::exit::{Code, Failure};
use rustix::process::{Signal, getpid, kill_process};
use std::fs;
use std::io;
use std::thread;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The signals that end a process by default.
const ENDING: [Signal; 6] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];

/// The signals of job control. With `--foreground`, they are not handled, because the terminal also sends them to the
/// command.
const STOPPING: [Signal; 2] = [Signal::TSTP, Signal::CONT];

/// The received signals, in order of arrival.
pub(crate) struct Signals {
    receiver: UnboundedReceiver<Signal>,
    /// Keeps the channel open, and sends HUP when stdin ends.
    sender: UnboundedSender<Signal>,
}

impl Signals {
    /// Installs the signal handlers. A signal that this process ignores, such as HUP under nohup(1), stays ignored.
    pub(crate) fn listen(foreground: bool) -> Result<Self, Failure> {
        let (sender, receiver) = unbounded_channel();
        let failed =
            |error| Failure::new(Code::FAILED, format!("cannot install signal handlers: {error}"));
        // If SIGCHLD is ignored, the kernel discards exit statuses. Installing a handler once ends this setting.
        signal(SignalKind::child()).map(drop).map_err(failed)?;
        let ignored = ignored();
        let stopping = STOPPING.iter().filter(|_| !foreground);
        for kind in ENDING.iter().chain(stopping).copied() {
            if ignored & (1 << (kind.as_raw() - 1)) == 0 {
                forward(kind, sender.clone()).map_err(failed)?;
            }
        }
        Ok(Self { receiver, sender })
    }

    /// Queues HUP when stdin ends. A separate thread reads stdin and discards the input.
    pub(crate) fn hang_up_with_stdin(&self) {
        let sender = self.sender.clone();
        thread::spawn(move || {
            // A read error counts as the end of stdin.
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            let _ = sender.send(Signal::HUP);
        });
    }

    /// Waits for the next signal.
    ///
    /// # Cancel safety
    /// If the future is dropped, no signal is lost.
    pub(crate) async fn next(&mut self) -> Signal {
        match self.receiver.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }

    /// Waits for a signal that ends the process. If TSTP arrives first, stops this process until CONT.
    pub(crate) async fn end(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::TSTP => stop_self(),
                Signal::CONT => {}
                ending => return ending,
            }
        }
    }
}

pub(crate) fn code(signal: Signal) -> Code {
    Code::of_signal(signal.as_raw().try_into().unwrap_or_default())
}

pub(super) fn stop_self() {
    let _ = kill_process(getpid(), Signal::STOP);
}

fn forward(kind: Signal, sender: UnboundedSender<Signal>) -> io::Result<()> {
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

/// Returns the bit mask of ignored signals, which Linux reports in `/proc`. Returns 0 on other systems.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or_default()
}
