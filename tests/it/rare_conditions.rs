//! Tests of rare conditions: users without permission for one command, clients closed in every state, brief outages,
//! and servers that are still loading their data when a client reconnects.

mod closing;
mod loading;
mod outages;
mod rights;
mod runtime_closing;
