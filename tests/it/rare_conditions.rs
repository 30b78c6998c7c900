//! Rare conditions: users without permission for one command, clients closed in every state, nodes that are
//! down or unreachable for a short time, and servers that load their data when a client reconnects.

mod closing;
mod loading;
mod outages;
mod rights;
mod runtime_closing;
