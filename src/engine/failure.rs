//! The error of a call that has no result.

use std::sync::Arc;
use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum EngineFailure {
    #[error("the client's coordinator has panicked: {0}")]
    Panicked(Arc<str>),
    #[error("the process was forked during the call")]
    Forked,
}
