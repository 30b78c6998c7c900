//! Leases that end because this client acquired their lock again, or adopted it.

use super::state::LeaseState;
use crate::acquire::PreviousLease;
use crate::protocol::Loss;

impl PreviousLease for LeaseState {
    fn handle_taken_over(&self) {
        let lost = self.renewal().lose(Loss::TakenOver, self.now());
        self.tell_lost(lost);
    }
}
