//! Observes the client while a command waits for a lock or holds it. Prints warnings: failing renewals, a semaphore
//! whose clients use different numbers of permits, and a job whose calls have different options. Records the results of
//! attempts.

use crate::outage::Attempts;
use crate::output;
use humantime::format_duration;
use quorlock::Observer;
use quorlock::event::{AttemptOutcome, Event};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

pub(crate) struct Warnings {
    /// The names of the resources or of the semaphore, escaped.
    names: String,
    attempts: Arc<Attempts>,
    /// Sends messages to the printing thread, which is started for the first message.
    printer: Mutex<Option<Sender<String>>>,
}

impl Warnings {
    pub(crate) fn new(names: String, attempts: Arc<Attempts>) -> Self {
        Self { names, attempts, printer: Mutex::default() }
    }

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

impl Observer for Warnings {
    fn on_event(&self, event: &Event) {
        let names = &self.names;
        match event {
            Event::AttemptFinished {
                outcome: AttemptOutcome::Won | AttemptOutcome::Refused,
                report,
                ..
            }
            | Event::JobUndecided { report, .. } => self.attempts.handle(report),
            Event::RenewalFailed { failures: 1, remaining, report, .. } => {
                let left = remaining.as_secs_f64();
                self.print(format!(
                    "{names}: renewals are failing; the lock is lost in {left:.1} s unless one succeeds: {report}"
                ));
            }
            Event::LeaseRenewed { failures: 1.., .. } => {
                self.print(format!("{names}: renewals succeed again"));
            }
            // No lease is held yet, so a full pipe delays only the acquire.
            Event::PermitsDiffer { permits, other_permits, .. } => output::print_message(format!(
                "{names}: another client uses {other_permits} permits instead of {permits}: use the same number \
                 everywhere"
            )),
            Event::JobsDiffer { period, other_period, takes_over, other_takes_over, .. } => {
                output::print_message(format!(
                    "{names}: another call ran this job with {} instead of {}: use the same options everywhere",
                    options(*other_period, *other_takes_over),
                    options(*period, *takes_over),
                ));
            }
            _ => {}
        }
    }
}

/// Returns the options of a scheduled job.
fn options(period: Duration, takes_over: bool) -> String {
    let more = if takes_over { " --take-over" } else { "" };
    format!("--every {}{more}", format_duration(period))
}
