//! What a future is dropped in: a client, nodes that are well or not, and others who want the lock.

use crate::nodes::{Nodes, R};
use crate::stage::{at_once, eventually, finish, turn};
use crate::{LONG, SOON, builder};
use quorlock::{Acquire, Lease, NodeState, Redlock};
use quorlock_test::pending_work;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A client that has done nothing yet, on nodes that are well and empty.
pub(crate) struct Scene {
    pub(crate) nodes: Rc<Nodes>,
    pub(crate) redlock: Redlock,
    kept: Cell<Option<Kept>>,
    crew: RefCell<Vec<JoinHandle<()>>>,
    cues: RefCell<Vec<(usize, Cue)>>,
}

type Cue = Box<dyn FnOnce(&Scene)>;

/// A lease that outlives the future.
struct Kept {
    lease: Rc<Lease>,
    until: Instant,
}

impl Scene {
    pub(crate) fn new(nodes: &Rc<Nodes>) -> Self {
        nodes.heal();
        nodes.flush();
        let redlock = builder(nodes).build().expect("good settings");
        let (kept, crew, cues) = Default::default();
        Self { nodes: nodes.clone(), redlock, kept, crew, cues }
    }

    /// Connects to all nodes.
    pub(crate) async fn warm_up(&self) {
        drop(self.lease(self.redlock.try_acquire("warm-up")).await);
        let amiss = || self.is_unready().or_else(|| self.nodes.ours());
        eventually(&self.nodes, amiss).await;
    }

    /// The lease that `acquire` wins, on all nodes that are well.
    pub(crate) async fn lease(&self, acquire: Acquire) -> Lease {
        let lease = finish(&self.nodes, acquire).await.expect("a free lock");
        eventually(&self.nodes, || self.nodes.lacks(&lease)).await;
        lease
    }

    /// A free lock, acquired on connected nodes.
    pub(crate) async fn held(&self) -> Lease {
        self.warm_up().await;
        self.lease(self.redlock.try_acquire(R)).await
    }

    /// Has the lease outlive the future. If that is dropped, the lease must be held as before.
    pub(crate) fn keep(&self, lease: Lease) -> Rc<Lease> {
        let until = Instant::now() + lease.validity();
        let lease = Rc::new(lease);
        self.kept.set(Some(Kept { lease: lease.clone(), until }));
        lease
    }

    /// Somebody else in this process waits for the lock, and must get it in the end.
    pub(crate) fn wait_too(&self) {
        let acquire = self.redlock.acquire(R).wait(LONG);
        let waiting = async { drop(acquire.await.expect("they let go of it in the end")) };
        self.crew.borrow_mut().push(tokio::spawn(waiting));
    }

    /// Calls `act` after the first poll of the future and then this number of `steps` of time.
    pub(crate) fn at(&self, steps: usize, act: impl FnOnce(&Scene) + 'static) {
        self.cues.borrow_mut().push((steps, Box::new(act)));
    }

    /// Does what is due after this number of steps of time. Returns true if something was done.
    pub(crate) fn play_cues(&self, passed: usize) -> bool {
        let due = |cue: &mut (usize, Cue)| cue.0 <= passed;
        let due: Vec<_> = self.cues.borrow_mut().extract_if(.., due).collect();
        let is_due = !due.is_empty();
        for (_, act) in due {
            act(self);
        }
        is_due
    }

    /// Sees to it that nothing stays. `idle_tasks` is the number of tasks that a client needs.
    pub(crate) async fn end(self, is_dropped: bool, idle_tasks: usize) {
        let nodes = &*self.nodes;
        // Its place in line and its permit went with it.
        let (counted, others) = (pending_work(&self.redlock), self.crew.borrow().len());
        assert!(counted.waiters <= others && counted.rounds <= others, "{counted:?}");
        // Whatever is on its way has its effect.
        for _ in 0..4 {
            turn(nodes).await;
        }
        if let Some(kept) = self.kept.take() {
            if is_dropped {
                kept.check(nodes);
            }
            drop(Rc::into_inner(kept.lease).expect("the future is gone, and with it its handle"));
        }
        nodes.release_elsewhere();
        for waiting in self.crew.take() {
            finish(nodes, waiting).await.expect("whoever waits gets it");
        }
        // Nodes that are not well do not hold up the others: no time passes.
        at_once(nodes, || nodes.ours().or_else(|| self.is_busy())).await;
        nodes.heal();
        let amiss = || nodes.ours().or_else(|| self.is_not_idle(idle_tasks));
        eventually(nodes, amiss).await;
        finish(nodes, self.redlock.close()).await.expect("nothing is owed");
        drop(self.redlock);
        eventually(nodes, || has_other_tasks(0)).await;
        // Nobody is left who could set a key from now on.
        assert_eq!(nodes.ours(), None);
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
            // It was never used.
            return self.is_busy();
        }
        self.is_unready().or_else(|| has_other_tasks(idle_tasks))
    }
}

impl Kept {
    fn check(&self, nodes: &Nodes) {
        // quorlock's clock also counts the time that really passes.
        if Instant::now() + SOON < self.until {
            assert_eq!(self.lease.loss(), None, "it stays as it was");
            assert!(self.lease.is_valid() && self.lease.validity() <= LONG);
        }
        assert_eq!(nodes.lacks(&self.lease), None, "it is still held");
    }
}

/// How many tasks an idle client needs, with all nodes up.
pub(crate) async fn idle_tasks(nodes: &Rc<Nodes>) -> usize {
    let scene = Scene::new(nodes);
    scene.warm_up().await;
    let count = tasks();
    scene.end(true, count).await;
    count
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

fn has_other_tasks(than: usize) -> Option<String> {
    (tasks() != than).then(|| format!("{} tasks, and not {than}", tasks()))
}
