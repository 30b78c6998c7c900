//! Releases that may be the reason why connections are closed.

use super::*;

#[test]
fn release_that_two_connections_did_not_answer_is_written_alone() {
    let mut bench = Bench::new();
    let now = bench.backlog.node.moment();
    let claim = bench.acquire("odd");
    bench.sent(now);
    claim.withdraw();
    bench.backlog.inbox.push(QueuedCommand::release(claim, None));
    assert!(bench.sent(now).contains("odd"));
    bench.replace(now);
    bench.acquire("a");
    let sent = bench.sent(now);
    assert!(sent.contains("odd") && sent.contains("SET"), "with others at first: {sent}");
    bench.replace(now);
    bench.acquire("b");
    let sent = bench.sent(now);
    assert!(!sent.contains("odd") && sent.contains("SET"), "others come first: {sent}");
    bench.acquire("c");
    assert_eq!(bench.sent(now), "", "the others are answered before");
    assert_eq!(bench.come(&format!("+OK\r\n{TOLD}"), now), Ok(false));
    let sent = bench.sent(now);
    assert!(sent.contains("odd") && !sent.contains("SET") && !sent.contains("TIME"), "{sent}");
    assert_eq!(bench.sent(now), "", "nothing is written behind it");
    bench.replace(now);
    let sent = bench.sent(now);
    assert!(!sent.contains("odd") && sent.contains("SET"), "it waits: {sent}");
    assert_eq!(bench.come(&format!("+OK\r\n{TOLD}"), now), Ok(false));
    let (later, pause) = (bench.backlog.next_repeat(true).expect("it is pending"), ms(10_000));
    assert!(now.timer.after(ms(1_000)) < later && later < now.timer.after(pause), "{later:?}");
    let later = Moment { ours: now.ours.after(pause), timer: now.timer.after(pause) };
    assert!(bench.sent(later).contains("odd"));
    assert_eq!(bench.come(":1\r\n", later), Ok(false));
    assert!(bench.backlog.owed.is_empty());
}

/// An alarm that is due, or a command that can be taken, would wake the task again and again until the reply arrives.
#[test]
fn commands_behind_an_isolated_release_wait_for_the_reply() {
    let mut bench = Bench::new();
    let now = bench.backlog.node.moment();
    let claims = ["other", "odd"].map(|name| bench.acquire(name));
    assert!(bench.sent(now).contains("odd"));
    for (claim, unanswered) in claims.into_iter().zip([0, 2]) {
        claim.withdraw();
        let mut release = QueuedCommand::release(claim, None);
        (0..unanswered).for_each(|_| release.note_unanswered());
        bench.backlog.keep(release);
    }
    assert!(!bench.line.is_idle());
    assert_eq!(bench.sent(now), "", "the acquires are answered before");
    assert_eq!(bench.line.next_repeat(&bench.backlog), None);
    assert!(bench.line.awaits_replies(&bench.backlog));
    assert_eq!(bench.come(&format!("+OK\r\n+OK\r\n{TOLD}"), now), Ok(false));
    assert!(bench.line.next_repeat(&bench.backlog).is_some_and(|at| at <= now.timer));
    assert!(!bench.line.awaits_replies(&bench.backlog));
    assert!(bench.sent(now).contains("odd"));
}
