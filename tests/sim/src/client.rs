//! Creates clients in the simulated world of their process, with the scenario's settings.

use crate::process::ProcessWorld;
use crate::scenario::Scenario;
use crate::worker::dice_of;
use quorlock::Redlock;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Creates a client. `number` identifies the client within the run. If `pinned` is set, all of the
/// client's connections use that runtime.
pub(crate) fn new_client(
    scenario: &Scenario,
    mut world: ProcessWorld,
    number: u64,
    pinned: Option<Handle>,
) -> Redlock {
    let times = scenario.times;
    world.client = number;
    let builder = Redlock::builder()
        .nodes((0..scenario.nodes).map(|node| format!("redis://n{node}")))
        .ttl(Duration::from_millis(times.ttl_ms))
        .max_ttl(scenario.max_ttl())
        .token_ttl(scenario.token_ttl)
        .wait(Duration::from_millis(4 * times.ttl_ms))
        .node_timeout(times.node_timeout)
        .connect_timeout(times.connect_timeout)
        .restart_guard(scenario.guard)
        .trust_persistence(scenario.durable != 0)
        .retry(scenario.retry.clone())
        .world(Arc::new(world))
        .seed(dice_of(scenario.seed, 100 + number).word());
    let builder = match pinned {
        Some(runtime) => builder.runtime(runtime),
        None => builder,
    };
    match builder.build() {
        Ok(redlock) => redlock,
        Err(error) => panic!("invalid settings of the simulation: {error}"),
    }
}
