//! The scenario in which a future is dropped: a client, healthy or failed nodes, and acquires that compete with the
//! future.

use crate::fixture::{eventually, eventually_without_time, finish, poll_until_idle};
use crate::nodes::{Nodes, R};
use crate::{LONG, SOON, builder};
use quorlock::{Acquire, Lease, NodeState, Redlock};
use quorlock_test::pending_work;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// One repetition of a test, with a new client and with healthy nodes that have no keys.
pub(crate) struct Scenario {
    pub(crate) nodes: Rc<Nodes>,
    pub(crate) redlock: Redlock,
    kept: Cell<Option<Kept>>,
    waiters: RefCell<Vec<JoinHandle<()>>>,
    actions: RefCell<Vec<(usize, Action)>>,
}

type Action = Box<dyn FnOnce(&Scenario)>;

/// A lease that must stay held after the future is dropped.
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

    pub(crate) async fn warm_up(&self) {
        drop(self.lease(self.redlock.try_acquire("warm-up")).await);
        let problem = || self.unready_problem().or_else(|| self.nodes.leftover_key());
        eventually(&self.nodes, problem).await;
    }

    pub(crate) async fn lease(&self, acquire: Acquire) -> Lease {
        let lease = finish(&self.nodes, acquire).await.expect("the lock is free");
        eventually(&self.nodes, || self.nodes.node_without_lease(&lease)).await;
        lease
    }

    pub(crate) async fn held(&self) -> Lease {
        self.warm_up().await;
        self.lease(self.redlock.try_acquire(R)).await
    }

    /// Stores `lease`, so that [`Self::check_and_close`] can check that the lease is still held after the future is
    /// dropped. Returns a handle for the future.
    pub(crate) fn keep(&self, lease: Lease) -> Rc<Lease> {
        let until = Instant::now() + lease.validity();
        let lease = Rc::new(lease);
        self.kept.set(Some(Kept { lease: lease.clone(), until }));
        lease
    }

    /// Spawns an acquire of [`R`] by the same client. The acquire waits for the lock, and must succeed before the
    /// scenario ends.
    pub(crate) fn spawn_waiter(&self) {
        let acquire = self.redlock.acquire(R).wait(LONG);
        let waiting = async { drop(acquire.await.expect("the lock becomes free")) };
        self.waiters.borrow_mut().push(tokio::spawn(waiting));
    }

    /// Schedules `action` to run `steps` clock steps after the first poll of the future.
    pub(crate) fn schedule(&self, steps: usize, action: impl FnOnce(&Scenario) + 'static) {
        self.actions.borrow_mut().push((steps, Box::new(action)));
    }

    pub(crate) fn run_due_actions(&self, passed: usize) -> bool {
        let due = |action: &mut (usize, Action)| action.0 <= passed;
        let due: Vec<_> = self.actions.borrow_mut().extract_if(.., due).collect();
        let is_due = !due.is_empty();
        for (_, action) in due {
            action(self);
        }
        is_due
    }

    /// Ends the scenario, and checks that no lock and no waiter are left. Also checks that the client has only as many
    /// tasks as an idle client, which is `idle_tasks`.
    pub(crate) async fn check_and_close(self, is_dropped: bool, idle_tasks: usize) {
        let nodes = &*self.nodes;
        // The dropped future has left its queue and returned its permit.
        let (counted, others) = (pending_work(&self.redlock), self.waiters.borrow().len());
        assert!(counted.waiters <= others && counted.rounds <= others, "{counted:?}");
        // Wait until requests in flight take effect.
        for _ in 0..4 {
            poll_until_idle(nodes).await;
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
        // The clocks do not advance here, because failed nodes must not delay the cleanup on other nodes.
        eventually_without_time(nodes, || nodes.leftover_key().or_else(|| self.busy_problem()))
            .await;
        nodes.heal();
        let problem = || nodes.leftover_key().or_else(|| self.idle_problem(idle_tasks));
        eventually(nodes, problem).await;
        finish(nodes, self.redlock.close()).await.expect("no release is pending");
        drop(self.redlock);
        eventually(nodes, || task_count_problem(0)).await;
        // No task is left that could set a key.
        assert_eq!(nodes.leftover_key(), None);
    }

    fn busy_problem(&self) -> Option<String> {
        let pending_work = pending_work(&self.redlock);
        (pending_work.waiters + pending_work.rounds > 0).then(|| format!("{pending_work:?}"))
    }

    fn unready_problem(&self) -> Option<String> {
        let states = self.redlock.nodes();
        let are_up = states.iter().all(|node| *node.state() == NodeState::Up);
        let pending_work = pending_work(&self.redlock);
        let is_ready = are_up && pending_work.is_empty();
        (!is_ready).then(|| format!("{pending_work:?}, {states:?}"))
    }

    fn idle_problem(&self, idle_tasks: usize) -> Option<String> {
        if tasks() == 0 {
            // The client was never used.
            return self.busy_problem();
        }
        self.unready_problem().or_else(|| task_count_problem(idle_tasks))
    }
}

impl Kept {
    fn check(&self, nodes: &Nodes) {
        // Quorlock's clock also includes real time.
        if Instant::now() + SOON < self.until {
            assert_eq!(self.lease.loss(), None, "the lease is unchanged");
            assert!(self.lease.is_valid() && self.lease.validity() <= LONG);
        }
        assert_eq!(nodes.node_without_lease(&self.lease), None, "the nodes still hold the lease");
    }
}

pub(crate) async fn idle_tasks(nodes: &Rc<Nodes>) -> usize {
    let scenario = Scenario::new(nodes);
    scenario.warm_up().await;
    let count = tasks();
    scenario.check_and_close(true, count).await;
    count
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

fn task_count_problem(than: usize) -> Option<String> {
    (tasks() != than).then(|| format!("{} tasks, and not {than}", tasks()))
}
