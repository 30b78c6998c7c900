//! The error of a call whose engine became unusable before the call completed.

use std::sync::Arc;
use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum EngineFailure {
    #[error("the client's coordinator has panicked: {0}")]
    Panicked(Arc<str>),
    #[error("the process was forked during the call")]
    Forked,
}
