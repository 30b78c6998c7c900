//! Loss of a lease because this client acquired or adopted its lock again.

use super::state::LeaseState;
use crate::acquire::PreviousLease;
use crate::protocol::Loss;

impl PreviousLease for LeaseState {
    fn handle_taken_over(&self) {
        let lost = self.renewal().lose(Loss::TakenOver, self.now());
        self.tell_lost(lost);
    }
}
