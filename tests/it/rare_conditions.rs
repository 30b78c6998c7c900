//! Rare conditions: permissions, closes, outages and loading. Users lack permission for one command, clients close in
//! every state, and nodes are briefly down or unreachable. Servers load their data when a client reconnects.

mod closing;
mod loading;
mod outages;
mod rights;
mod runtime_closing;
