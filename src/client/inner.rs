//! State of a client.

use super::settings::Settings;
#[cfg(not(quorlock_coordinator))]
pub(super) use crate::acquire::Driver;
#[cfg(quorlock_coordinator)]
pub(super) use crate::engine::Client as Driver;
use crate::error::ClientError;
use crate::lease::Backing;
#[cfg(not(quorlock_coordinator))]
use crate::node::Nodes;
use crate::wire::Keys;
use std::sync::Arc;

/// State that the clones of a client share. A profile has different settings, but the same driver and leases.
pub(crate) struct Inner {
    pub(crate) driver: Arc<Driver>,
    pub(crate) backing: Arc<Backing>,
    pub(crate) settings: Settings,
}

impl Inner {
    /// Returns the key of `resource`, unless the client is closed or there is no runtime.
    #[cfg(quorlock_coordinator)]
    pub(super) fn reach(&self, resource: &[u8]) -> Result<((), Keys), ClientError> {
        self.driver.check_ready()?;
        Ok(((), Keys::one(self.settings.key(resource)?)))
    }

    /// Returns the nodes and the key of `resource`.
    #[cfg(not(quorlock_coordinator))]
    pub(super) fn reach(&self, resource: &[u8]) -> Result<(Arc<Nodes>, Keys), ClientError> {
        let nodes = self.driver.ready()?;
        Ok((nodes, Keys::one(self.settings.key(resource)?)))
    }
}
