//! The output of `status` for a lock.

use super::answer::{self, Answer, NodeState};
use super::verdict::{Verdict, unknown_reason};
use crate::{output, resource, target};
use quorlock::{Holder, Status};
use serde::Serialize;
use std::time::Duration;

#[derive(Serialize)]
pub(super) struct LockAnswer {
    resource: String,
    state: Verdict,
    holder: Option<Holder>,
    acquirable_in_seconds: Option<f64>,
    #[serde(flatten)]
    status: Status,
}

impl LockAnswer {
    pub(super) fn new(name: &[u8], status: Status) -> Self {
        Self {
            resource: resource::display_name(name),
            state: Verdict::of(&status),
            holder: status.holder(),
            acquirable_in_seconds: status.acquirable_in().map(|wait| wait.as_secs_f64()),
            status,
        }
    }
}

impl Answer for LockAnswer {
    type Comparable = Vec<NodeState>;

    fn state(&self) -> Verdict {
        self.state
    }

    fn acquirable_in(&self) -> Option<Duration> {
        self.status.acquirable_in()
    }

    fn summary(&self) -> String {
        let (style, text) = match (self.state, &self.holder, self.delay()) {
            (Verdict::Free, _, None) => (output::GOOD, "free".to_owned()),
            (Verdict::Free, _, Some(wait)) => {
                (output::WARNING, format!("free, {}", answer::delayed(wait)))
            }
            (Verdict::Held, Some(holder), _) => (output::WARNING, target::described(holder)),
            (Verdict::Held, None, _) => (
                output::WARNING,
                "held: no holder has a majority, and no majority is free".to_owned(),
            ),
            (Verdict::Unknown, ..) => {
                (output::BAD, format!("unknown: {}", unknown_reason(&self.status)))
            }
        };
        format!("{}: {}", self.resource, output::styled(style, text))
    }

    fn details(&self) -> Vec<String> {
        self.status.nodes().iter().map(ToString::to_string).collect()
    }

    fn comparable(&self) -> Self::Comparable {
        answer::node_states(&self.status)
    }
}
