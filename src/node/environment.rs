//! What a client takes from the machine that it runs on.

use crate::random::Random;
use crate::time::Clock;
use crate::transport::{Sockets, Transport};
use std::sync::Arc;

/// The seams of a client: given to it when it is built, and handed down to all that it has. Nothing else
/// connects, reads a clock or draws a number.
#[derive(Clone)]
pub(crate) struct Environment {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            transport: Arc::new(Sockets::default()),
            clock: Clock::default(),
            random: Random::default(),
        }
    }
}
