//! Claims that are only asked about.

use crate::node::Claim;
use std::sync::Arc;

/// Claims that are asked about: nothing more is written once nobody waits for the answers.
#[derive(Default)]
pub(crate) struct Asked(Vec<Arc<Claim>>);

impl Asked {
    /// This one is asked about as well.
    pub(crate) fn note(&mut self, claim: Arc<Claim>) {
        self.0.push(claim);
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.iter().for_each(|claim| claim.withdraw());
    }
}
