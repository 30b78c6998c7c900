//! State that the clones of a client share.

use super::settings::Settings;
pub(super) use crate::engine::Client as Driver;
use crate::error::ClientError;
use crate::lease::Backing;
use crate::wire::Keys;
use std::sync::Arc;

pub(crate) struct Inner {
    pub(crate) driver: Arc<Driver>,
    pub(crate) backing: Arc<Backing>,
    pub(crate) settings: Settings,
}

impl Inner {
    /// Returns the key of `resource`. Fails if `resource` is invalid, if the client is closed, or if no runtime is
    /// available.
    pub(super) fn checked_keys(&self, resource: &[u8]) -> Result<Keys, ClientError> {
        self.driver.check_ready()?;
        Ok(Keys::one(self.settings.key(resource)?))
    }
}
