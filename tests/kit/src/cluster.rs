//! A group of independent servers.

use std::ops::Deref;
use std::slice::{Iter, IterMut};
use std::thread::{self, ScopedJoinHandle};

use crate::{Proxy, Server, ServerBuilder};

/// A group of independent servers, which are the nodes of a Redlock client.
///
/// Dereferences to a slice of [`Server`]s: `cluster[0]`, `cluster.len()`, `cluster.iter()`, `for
/// server in &cluster`. Only [`is_empty`](Self::is_empty) differs from the slice's method.
#[derive(Debug)]
#[must_use = "a cluster that is dropped ends"]
pub struct Cluster {
    servers: Vec<Server>,
}

impl Cluster {
    /// Starts `nodes` servers in parallel, with the defaults of [`ServerBuilder`].
    ///
    /// # Panics
    ///
    /// Panics if a server does not start. See [`Server::start`].
    #[track_caller]
    pub fn start(nodes: usize) -> Self {
        Self::start_with(nodes, &Server::builder())
    }

    /// Starts `nodes` servers in parallel with the same settings: `Cluster::start_with(3,
    /// &Server::builder().durable())`.
    ///
    /// # Panics
    ///
    /// Panics if a server does not start. See [`Server::start`].
    #[track_caller]
    pub fn start_with(nodes: usize, setup: &ServerBuilder) -> Self {
        let servers = thread::scope(|scope| {
            let starting: Vec<_> = (0..nodes).map(|_| scope.spawn(|| setup.start())).collect();
            let started = starting.into_iter().map(ScopedJoinHandle::join);
            started.collect::<Result<_, _>>()
        });
        Self { servers: servers.expect("a server did not start; see its message above") }
    }

    /// Returns the servers.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Returns the servers as a mutable slice, so that a test can replace a server.
    pub fn servers_mut(&mut self) -> &mut [Server] {
        &mut self.servers
    }

    /// Returns the [`Server::url`] of each server.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(Server::url).collect()
    }

    /// Starts a proxy in front of each server.
    #[must_use = "a proxy that is dropped ends"]
    pub fn proxies(&self) -> Vec<Proxy> {
        self.servers.iter().map(|server| Proxy::start(server.addr())).collect()
    }

    /// Returns true if the string `key` exists on every server.
    #[track_caller]
    #[must_use]
    pub fn all_have(&self, key: impl AsRef<[u8]>) -> bool {
        self.servers.iter().all(|server| server.get(&key).is_some())
    }

    /// Returns true if the string `key` exists on no server.
    #[track_caller]
    #[must_use]
    pub fn none_has(&self, key: impl AsRef<[u8]>) -> bool {
        self.servers.iter().all(|server| server.get(&key).is_none())
    }

    /// Returns the result of [`Server::keys`] for each server, in order. The list of a killed or
    /// stopped server is empty.
    #[track_caller]
    #[must_use]
    pub fn keys_per_node(&self) -> Vec<Vec<Vec<u8>>> {
        self.servers
            .iter()
            .map(|server| if can_answer(server) { server.keys() } else { Vec::new() })
            .collect()
    }

    /// Returns true if no server has a key. Ignores servers that are killed or stopped. Unlike a
    /// slice's `is_empty`, this method does not count servers.
    #[track_caller]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys_per_node().iter().all(Vec::is_empty)
    }
}

fn can_answer(server: &Server) -> bool {
    server.is_running() && !server.is_stopped()
}

impl Deref for Cluster {
    type Target = [Server];

    fn deref(&self) -> &[Server] {
        &self.servers
    }
}

impl<'a> IntoIterator for &'a Cluster {
    type Item = &'a Server;
    type IntoIter = Iter<'a, Server>;

    fn into_iter(self) -> Iter<'a, Server> {
        self.servers.iter()
    }
}

impl<'a> IntoIterator for &'a mut Cluster {
    type Item = &'a mut Server;
    type IntoIter = IterMut<'a, Server>;

    fn into_iter(self) -> IterMut<'a, Server> {
        self.servers.iter_mut()
    }
}
