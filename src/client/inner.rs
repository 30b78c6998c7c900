//! State that the clones of a client share.

use super::settings::Settings;
pub(super) use crate::engine::Client as Driver;
use crate::error::ClientError;
use crate::lease::Backing;
use crate::protocol::Time;
use crate::wire::Keys;
use futures::future::{Either, select};
use std::pin::pin;
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

    /// Waits until `at`, or until the client is closed.
    pub(super) async fn sleep_until(&self, at: Time) {
        let _closed = self.until_closed(self.backing.clock().sleep_until(at)).await.is_err();
    }

    /// Returns the output of `call`, or drops `call` and returns an error once the client is closed.
    pub(super) async fn until_closed<T>(
        &self,
        call: impl Future<Output = T>,
    ) -> Result<T, ClientError> {
        match select(pin!(self.driver.until_closed()), pin!(call)).await {
            Either::Left(((), _)) => Err(ClientError::Closed),
            Either::Right((output, _)) => Ok(output),
        }
    }
}
