//! Prints messages about failing renewals.

use crate::{output, resource};
use quorlock::Observer;
use quorlock::event::{Event, LockInfo};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Prints a message when renewals begin to fail, and when they succeed again.
#[derive(Default)]
pub(crate) struct Renewals {
    /// Sends messages to the printing thread, which is started for the first message.
    printer: Mutex<Option<Sender<String>>>,
}

impl Renewals {
    /// Prints on a separate thread, because a full pipe would block the observer and delay renewals.
    fn print(&self, line: String) {
        let mut printer = self.printer.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = printer.get_or_insert_with(|| {
            let (sender, lines) = channel::<String>();
            thread::spawn(move || lines.iter().for_each(output::print_message));
            sender
        });
        // `send` fails only if the printing thread has panicked.
        let _ = sender.send(line);
    }
}

fn names(lock: &LockInfo) -> String {
    resource::display_names(&lock.resources.iter().collect::<Vec<_>>())
}

impl Observer for Renewals {
    fn on_event(&self, event: &Event) {
        match event {
            Event::RenewalFailed { lock, failures: 1, remaining, report, .. } => {
                let left = remaining.as_secs_f64();
                self.print(format!(
                    "{}: renewals are failing; the lock is lost in {left:.1} s unless one succeeds: {report}",
                    names(lock)
                ));
            }
            Event::LeaseRenewed { lock, failures: 1.., .. } => {
                self.print(format!("{}: renewals succeed again", names(lock)));
            }
            _ => {}
        }
    }
}
