//! Tests of calls that are in progress when their client is closed.

use crate::{SOON, builder, client, ms};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use kit::{Cluster, Server};
use quorlock::{AcquireError, ClientError, JobError, Lease, Redlock, RetryPolicy, ScheduledJob};
use std::future::{pending, poll_fn};
use std::iter::repeat;
use std::pin::pin;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The number of polls of a call at which a test closes the client at the latest. Most calls end before.
const MAX_STEP: usize = 8;

/// How long a call can wait without a poll before a test closes the client.
const IDLE: Duration = Duration::from_millis(200);

/// The resource whose lock another client holds.
const HELD: &str = "held";

type Call = fn(Redlock) -> LocalBoxFuture<'static, ()>;

macro_rules! calls {
    ($($name:literal: |$redlock:ident| $call:expr;)*) => {
        [$(($name, |$redlock| async move { let _ = $call.await; }.boxed_local())),*]
    };
}

fn job(redlock: &Redlock, name: &str) -> ScheduledJob {
    let job = redlock.once(name).every(Duration::from_hours(24)).wait(Duration::MAX);
    // The first delay is short, the next ones are longer than a test.
    job.retry(RetryPolicy::custom(|| [ms(50)].into_iter().chain(repeat(Duration::from_hours(1)))))
}

async fn start_and_finish(job: ScheduledJob) {
    let Ok(started) = job.start().await else { return };
    if let Some(started) = started.ran() {
        let _ = started.finish().await;
    }
}

/// Calls `use_lease` with a lease that the client has acquired.
async fn with_lease<T>(redlock: Redlock, use_lease: impl AsyncFnOnce(Lease) -> T) {
    if let Ok(lease) = redlock.acquire("r").await {
        use_lease(lease).await;
    }
}

async fn observe(redlock: Redlock) {
    let mut leaders = redlock.election("leader").build().expect("valid settings").observe();
    while leaders.next().await.is_some() {}
}

fn calls() -> [(&'static str, Call); 36] {
    calls! {
        "ready": |redlock| redlock.ready();
        "check": |redlock| redlock.check();
        "close": |redlock| redlock.close();
        "release_all": |redlock| redlock.release_all();
        "status": |redlock| redlock.status(HELD);
        "force_release": |redlock| redlock.force_release("r");
        "try_acquire": |redlock| redlock.try_acquire("r");
        "acquire": |redlock| redlock.acquire(HELD);
        "acquire fenced": |redlock| redlock.acquire("r").fenced();
        "acquire_all": |redlock| redlock.acquire_all(["r", HELD]);
        "acquire_any": |redlock| redlock.acquire_any(["r", "s"]);
        "adopt": |redlock| redlock.adopt("r", "no lease has this value");
        "using": |redlock| redlock.using("r", async |_| pending::<()>().await);
        "try_using": |redlock| redlock.try_using("r", async |_| Ok::<_, ()>(()));
        "write": |redlock| redlock.rw_lock("r").expect("a valid name").write();
        "write held": |redlock| redlock.rw_lock(HELD).expect("a valid name").write();
        "read": |redlock| redlock.rw_lock("r").expect("a valid name").read();
        "read held": |redlock| redlock.rw_lock(HELD).expect("a valid name").read();
        "permit": |redlock| redlock.semaphore("s", 2).expect("valid settings").acquire();
        "semaphore status": |redlock| async move {
            redlock.semaphore("s", 2).expect("valid settings").status().await
        };
        "extend": |redlock| with_lease(redlock, async |it| it.extend(SOON).await);
        "ensure": |redlock| with_lease(redlock, async |it| it.ensure(ms(29_900)).await);
        "release": |redlock| with_lease(redlock, async |it| it.release().await);
        "release_after": |redlock| with_lease(redlock, async |it| it.release_after(ms(500)).await);
        "lost": |redlock| with_lease(redlock, async |it| it.lost().await);
        "ended": |redlock| with_lease(redlock, async |it| it.ended().await);
        "stopping": |redlock| with_lease(redlock, async |it| it.stopping().await);
        "downgrade": |redlock| async move {
            let Ok(writer) = redlock.rw_lock("r").expect("a valid name").write().await else { return };
            let _ = writer.downgrade().await;
        };
        "campaign": |redlock| async move {
            let election = redlock.election(HELD).build().expect("valid settings");
            election.campaign("").await
        };
        "election": |redlock| async move {
            let election = redlock.election("r").build().expect("valid settings");
            election.run(async |leadership| leadership.lost().await).await
        };
        "observe": |redlock| observe(redlock);
        "job": |redlock| async move { job(&redlock, "r").run(async |_| ()).await };
        "job held": |redlock| async move { job(&redlock, HELD).run(async |_| ()).await };
        "job taken over": |redlock| async move {
            job(&redlock, "r").take_over().run(async |_| ()).await
        };
        "started job": |redlock| start_and_finish(job(&redlock, "r"));
        "started job taken over": |redlock| start_and_finish(job(&redlock, "r").take_over());
    }
}

/// Polls `call`, and closes the client before the poll with the number `step`, or once the call waits. Returns true if
/// the call ended before that.
async fn close_at(step: usize, redlock: &Redlock, call: impl Future<Output = ()>) -> bool {
    let (mut call, mut idle) = (pin!(call), pin!(sleep(IDLE)));
    let (mut polls, mut close) = (0, None);
    poll_fn(|cx| {
        if close.is_none() && (polls == step || idle.as_mut().poll(cx).is_ready()) {
            close = Some(Box::pin(redlock.close().fuse()));
        }
        polls += 1;
        if let Some(close) = &mut close {
            let _ = close.poll_unpin(cx);
        }
        call.as_mut().poll(cx)
    })
    .await;
    close.is_none()
}

#[tokio::test]
async fn calls_of_every_kind_end_when_the_client_is_closed() {
    let cluster = Cluster::start(3);
    let other = client(&cluster);
    let held = other.acquire(HELD).ttl(Duration::from_mins(30)).await.expect("the lock is free");
    for (name, call) in calls() {
        for step in 0..MAX_STEP {
            let redlock = builder(&cluster).connect_timeout(SOON).build().expect("valid settings");
            // The calls of the other half begin while the client connects.
            if step % 2 == 0 {
                redlock.ready().await.expect("nodes are up");
            }
            let ended = timeout(SOON, close_at(step, &redlock, call(redlock.clone()))).await;
            let Ok(has_ended) = ended else {
                panic!("{name} goes on after the close at step {step}")
            };
            timeout(SOON, redlock.close()).await.expect("close ends").expect("nodes are up");
            if has_ended {
                break;
            }
        }
    }
    assert!(held.is_valid());
    assert_eq!(held.release().await, Ok(quorlock::ReleaseOutcome::Released));
}

/// The nodes never reply, so that only the close can end the calls.
#[tokio::test]
async fn requests_to_hung_nodes_end_when_the_client_is_closed() {
    let cluster = Cluster::start(3);
    let long = SOON / 2;
    for (name, call) in calls() {
        let redlock = builder(&cluster).node_timeout(long).connect_timeout(ms(100)).build();
        let redlock = redlock.expect("valid settings");
        redlock.ready().await.expect("nodes are up");
        cluster.servers().iter().for_each(Server::stop);
        let ended = timeout(long, close_at(usize::MAX, &redlock, call(redlock.clone()))).await;
        cluster.servers().iter().for_each(Server::cont);
        assert!(ended.is_ok(), "{name} goes on for {long:?} after the close");
    }
}

#[tokio::test]
async fn closed_client_is_the_error_of_requests_that_close_ends() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).node_timeout(SOON / 2).connect_timeout(ms(1_000)).build();
    let redlock = redlock.expect("valid settings");
    redlock.ready().await.expect("nodes are up");
    cluster.servers().iter().for_each(Server::stop);
    let job = job(&redlock, "r");
    let calls = async {
        tokio::join!(
            redlock.status("r"),
            redlock.force_release("r"),
            redlock.check(),
            job.run(async |_| ()),
            async {
                sleep(IDLE).await;
                redlock.close().await
            },
        )
    };
    let ended = timeout(SOON / 2, calls).await;
    cluster.servers().iter().for_each(Server::cont);
    let (status, forced, checked, ran, _) = ended.expect("the close ends all calls");
    assert!(matches!(status, Err(ClientError::Closed)), "{status:?}");
    assert!(matches!(forced, Err(ClientError::Closed)), "{forced:?}");
    assert!(matches!(checked, Err(ClientError::Closed)), "{checked:?}");
    assert!(matches!(ran, Err(JobError::NotAcquired(AcquireError::Closed))), "{ran:?}");
}
