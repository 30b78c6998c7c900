//! Messages about renewals that fail.

use crate::output;
use quorlock::{Observer, RenewalFailing, Renewed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Prints a line when renewals begin to fail, and another when they succeed again.
#[derive(Default)]
pub(crate) struct Renewals {
    /// Sender to the printing thread, created with the first line.
    printer: Mutex<Option<Sender<String>>>,
}

impl Renewals {
    /// Prints on another thread, because an observer that blocks on a full pipe would delay renewals.
    fn print(&self, line: String) {
        let mut printer = self.printer.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = printer.get_or_insert_with(|| {
            let (sender, lines) = channel::<String>();
            thread::spawn(move || lines.iter().for_each(output::print_message));
            sender
        });
        // Fails only if the thread has panicked.
        let _ = sender.send(line);
    }
}

impl Observer for Renewals {
    fn renewal_failing(&self, event: &RenewalFailing<'_>) {
        if event.failures == 1 {
            let (left, report) = (event.left.as_secs_f64(), event.report);
            self.print(format!(
                "renewals are failing, the lock will be lost in {left:.1} s: {report}"
            ));
        }
    }

    fn renewed(&self, event: &Renewed<'_>) {
        if event.failures > 0 {
            self.print("renewals succeed again".to_owned());
        }
    }
}
