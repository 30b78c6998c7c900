//! The end of a mailbox: nothing that was put into it is lost.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::coop::unconstrained;

/// How long a thread may take to put a command into a mailbox that it has found open (I12): as long as
/// a busy machine keeps it from running between two steps.
const LONGEST_SEND: Duration = Duration::from_secs(5);

/// Empties a mailbox that was closed. What is in it, and what is being put there at this moment, is
/// handed to `rescue`.
///
/// 1. A thread that drops a lease finds the mailbox open.
/// 2. The mailbox is closed, and emptied.
/// 3. The thread puts its release there, where nobody looks any more: the key stays for its ttl.
///
/// (Seen on a busy machine, for some four of ten thousand runtimes that were shut down.) So it is
/// emptied until no such thread is left.
pub(super) fn empty<T>(mailbox: &mut UnboundedReceiver<T>, mut rescue: impl FnMut(T)) {
    let begun = Instant::now();
    while begun.elapsed() < LONGEST_SEND {
        // A task that is being dropped may have used up its cooperative budget.
        let mut next = pin!(unconstrained(poll_fn(|cx| mailbox.poll_recv(cx))));
        match next.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(command)) => rescue(command),
            Poll::Ready(None) => return,
            Poll::Pending => thread::yield_now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc::unbounded_channel;

    #[test]
    fn whatever_was_sent_before_it_was_closed_comes_out() {
        for round in 0..100 {
            let (sender, mut mailbox) = unbounded_channel();
            let senders: Vec<_> = (0..3)
                .map(|_| {
                    let sender = sender.clone();
                    thread::spawn(move || {
                        (0..u32::MAX).take_while(|n| sender.send(*n).is_ok()).count()
                    })
                })
                .collect();
            thread::sleep(Duration::from_micros(round % 50));
            mailbox.close();
            let mut out = 0;
            empty(&mut mailbox, |_| out += 1);
            let sent: usize = senders.into_iter().map(|it| it.join().expect("no panic")).sum();
            assert_eq!(out, sent, "round {round}");
        }
    }
}
