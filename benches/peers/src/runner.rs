//! Runs the clients in this process: as tasks that use a library, or in the bare loop.

use std::sync::Arc;

use tokio::runtime::Runtime;

use crate::bare_loop::BareLoop;
use crate::contender::{Contender, EagerRslock, Library, Quorlock, Rslock};
use crate::measure::{self, Slice};
use crate::raw_fan_out::RawFanOut;
use crate::tally::Measured;

pub(crate) trait Runner {
    fn run(&mut self, slice: &Slice) -> Measured;
}

/// Connects `clients` clients of `library` to the nodes. Some libraries open their connections only in the first cycle.
pub(crate) fn runner<'a>(
    library: Library,
    clients: usize,
    urls: &[String],
    runtime: &'a Runtime,
) -> Result<Box<dyn Runner + 'a>, String> {
    match library {
        Library::Rslock => Tasks::<Rslock>::boxed(clients, urls, runtime),
        Library::EagerRslock => Tasks::<EagerRslock>::boxed(clients, urls, runtime),
        Library::Quorlock => Tasks::<Quorlock>::boxed(clients, urls, runtime),
        Library::RawFanOut => Tasks::<RawFanOut>::boxed(clients, urls, runtime),
        Library::BareLoop => Ok(Box::new(BareLoop::connect(urls)?)),
    }
}

struct Tasks<'a, C> {
    runtime: &'a Runtime,
    clients: Vec<Arc<C>>,
}

impl<'a, C: Contender> Tasks<'a, C> {
    fn boxed(
        clients: usize,
        urls: &[String],
        runtime: &'a Runtime,
    ) -> Result<Box<dyn Runner + 'a>, String> {
        let connect = || runtime.block_on(C::connect(urls)).map(Arc::new);
        let clients: Result<Vec<_>, _> = (0..clients).map(|_| connect()).collect();
        let clients = clients.map_err(|error| format!("{}: {error}", C::NAME))?;
        Ok(Box::new(Self { runtime, clients }))
    }
}

impl<C: Contender> Runner for Tasks<'_, C> {
    fn run(&mut self, slice: &Slice) -> Measured {
        self.runtime.block_on(measure::run(slice, &self.clients))
    }
}
