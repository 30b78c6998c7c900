//! The task of one node, on a runtime.

use super::shared::Engine;
use crate::protocol::NodeId;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use tokio::runtime::Handle;

/// Takes turns for the node until the client is closed. Its drop hands the node to another task.
struct NodeTask {
    engine: Arc<Engine>,
    node: NodeId,
}

/// Starts the task of `node`.
pub(super) fn start(engine: &Arc<Engine>, node: NodeId, runtime: &Handle) {
    let task = NodeTask { engine: engine.clone(), node };
    let task = poll_fn(move |cx| {
        let NodeTask { engine, node } = &task;
        let io = &engine.nodes[node.index()];
        io.register(cx.waker());
        io.take_turn(engine, cx, true);
        if engine.with_io(*node, |it, _| it.is_closed()) { Poll::Ready(()) } else { Poll::Pending }
    });
    runtime.spawn(engine.environment().task(task));
}

impl Drop for NodeTask {
    fn drop(&mut self) {
        self.engine.handle_task_end(self.node);
    }
}
