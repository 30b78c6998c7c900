//! The scenario in which a future is dropped: a client, healthy or failed nodes, and competing acquires.

use crate::fixture::{at_once, eventually, finish, turn};
use crate::nodes::{Nodes, R};
use crate::{LONG, SOON, builder};
use quorlock::{Acquire, Lease, NodeState, Redlock};
use quorlock_test::pending_work;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// An unused client on healthy, empty nodes.
pub(crate) struct Scenario {
    pub(crate) nodes: Rc<Nodes>,
    pub(crate) redlock: Redlock,
    kept: Cell<Option<Kept>>,
    waiters: RefCell<Vec<JoinHandle<()>>>,
    actions: RefCell<Vec<(usize, Action)>>,
}

type Action = Box<dyn FnOnce(&Scenario)>;

/// A lease that remains held after the future was dropped.
struct Kept {
    lease: Rc<Lease>,
    until: Instant,
}

impl Scenario {
    pub(crate) fn new(nodes: &Rc<Nodes>) -> Self {
        nodes.heal();
        nodes.flush();
        let redlock = builder(nodes).build().expect("valid settings");
        let (kept, waiters, actions) = Default::default();
        Self { nodes: nodes.clone(), redlock, kept, waiters, actions }
    }

    /// Connects to all nodes.
    pub(crate) async fn warm_up(&self) {
        drop(self.lease(self.redlock.try_acquire("warm-up")).await);
        let problem = || self.is_unready().or_else(|| self.nodes.leftover_key());
        eventually(&self.nodes, problem).await;
    }

    /// Runs `acquire`, and waits until all healthy nodes hold the lease.
    pub(crate) async fn lease(&self, acquire: Acquire) -> Lease {
        let lease = finish(&self.nodes, acquire).await.expect("the lock is free");
        eventually(&self.nodes, || self.nodes.lacks(&lease)).await;
        lease
    }

    /// Acquires [`R`] on connected nodes.
    pub(crate) async fn held(&self) -> Lease {
        self.warm_up().await;
        self.lease(self.redlock.try_acquire(R)).await
    }

    /// Keeps the lease after the future was dropped, and checks that it is still held then.
    pub(crate) fn keep(&self, lease: Lease) -> Rc<Lease> {
        let until = Instant::now() + lease.validity();
        let lease = Rc::new(lease);
        self.kept.set(Some(Kept { lease: lease.clone(), until }));
        lease
    }

    /// Starts another acquire in this process, which must succeed in the end.
    pub(crate) fn spawn_waiter(&self) {
        let acquire = self.redlock.acquire(R).wait(LONG);
        let waiting = async { drop(acquire.await.expect("the lock becomes free")) };
        self.waiters.borrow_mut().push(tokio::spawn(waiting));
    }

    /// Calls `action` after the first poll of the future and then `steps` steps of time.
    pub(crate) fn at(&self, steps: usize, action: impl FnOnce(&Scenario) + 'static) {
        self.actions.borrow_mut().push((steps, Box::new(action)));
    }

    /// Runs the actions due after `passed` steps of time. Returns true if any ran.
    pub(crate) fn run_due_actions(&self, passed: usize) -> bool {
        let due = |action: &mut (usize, Action)| action.0 <= passed;
        let due: Vec<_> = self.actions.borrow_mut().extract_if(.., due).collect();
        let is_due = !due.is_empty();
        for (_, action) in due {
            action(self);
        }
        is_due
    }

    /// Checks that no lock, waiter or task remains, except the `idle_tasks` tasks of an idle client.
    pub(crate) async fn end(self, is_dropped: bool, idle_tasks: usize) {
        let nodes = &*self.nodes;
        // The dropped future has left its queue and returned its permit.
        let (counted, others) = (pending_work(&self.redlock), self.waiters.borrow().len());
        assert!(counted.waiters <= others && counted.rounds <= others, "{counted:?}");
        // Let requests on their way take effect.
        for _ in 0..4 {
            turn(nodes).await;
        }
        if let Some(kept) = self.kept.take() {
            if is_dropped {
                kept.check(nodes);
            }
            drop(
                Rc::into_inner(kept.lease).expect("the dropped future held the only other handle"),
            );
        }
        nodes.release_by_other();
        for waiting in self.waiters.take() {
            finish(nodes, waiting).await.expect("the waiting acquire succeeds");
        }
        // Failed nodes must not delay the others: this takes no time.
        at_once(nodes, || nodes.leftover_key().or_else(|| self.is_busy())).await;
        nodes.heal();
        let problem = || nodes.leftover_key().or_else(|| self.is_not_idle(idle_tasks));
        eventually(nodes, problem).await;
        finish(nodes, self.redlock.close()).await.expect("no release is pending");
        drop(self.redlock);
        eventually(nodes, || has_other_tasks(0)).await;
        // No task is left that could set a key.
        assert_eq!(nodes.leftover_key(), None);
    }

    fn is_busy(&self) -> Option<String> {
        let pending_work = pending_work(&self.redlock);
        (pending_work.waiters + pending_work.rounds > 0).then(|| format!("{pending_work:?}"))
    }

    fn is_unready(&self) -> Option<String> {
        let states = self.redlock.nodes();
        let are_up = states.iter().all(|node| *node.state() == NodeState::Up);
        let pending_work = pending_work(&self.redlock);
        let is_ready = are_up && pending_work.is_empty();
        (!is_ready).then(|| format!("{pending_work:?}, {states:?}"))
    }

    fn is_not_idle(&self, idle_tasks: usize) -> Option<String> {
        if tasks() == 0 {
            // The client was never used.
            return self.is_busy();
        }
        self.is_unready().or_else(|| has_other_tasks(idle_tasks))
    }
}

impl Kept {
    fn check(&self, nodes: &Nodes) {
        // Real time counts on quorlock's clock too.
        if Instant::now() + SOON < self.until {
            assert_eq!(self.lease.loss(), None, "the lease is unchanged");
            assert!(self.lease.is_valid() && self.lease.validity() <= LONG);
        }
        assert_eq!(nodes.lacks(&self.lease), None, "the nodes still hold the lease");
    }
}

/// Returns the number of tasks of an idle client with all nodes up.
pub(crate) async fn idle_tasks(nodes: &Rc<Nodes>) -> usize {
    let scenario = Scenario::new(nodes);
    scenario.warm_up().await;
    let count = tasks();
    scenario.end(true, count).await;
    count
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

fn has_other_tasks(than: usize) -> Option<String> {
    (tasks() != than).then(|| format!("{} tasks, and not {than}", tasks()))
}
