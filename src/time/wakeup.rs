//! Sleeps and timeouts of a task, based on the alarms of a client's clock.

use super::clock::Clock;
use super::on_alarm::OnAlarm;
use crate::protocol::Time;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;

struct NotifyOnAlarm(Notify);

impl OnAlarm for NotifyOnAlarm {
    fn on_alarm(self: Arc<Self>, _now: Time) -> Option<Time> {
        self.0.notify_one();
        None
    }
}

impl Clock {
    /// Sleeps until `at`, even while the runtime's timers are delayed.
    pub(crate) async fn sleep_until(&self, at: Time) {
        let notify = Arc::new(NotifyOnAlarm(Notify::new()));
        let callback: Weak<dyn OnAlarm> = Arc::<NotifyOnAlarm>::downgrade(&notify);
        let _alarm = self.set_alarm(at, callback);
        notify.0.notified().await;
    }

    /// Awaits `task` for at most `limit`. Returns the output of `task` and the remaining time, or `None` if `limit` has
    /// passed.
    pub(crate) async fn timeout<T>(
        &self,
        limit: Duration,
        task: impl Future<Output = T>,
    ) -> Option<(T, Duration)> {
        let end = self.now().after(limit);
        tokio::select! {
            biased;
            output = task => Some((output, end.since(self.now()))),
            () = self.sleep_until(end) => None,
        }
    }
}
