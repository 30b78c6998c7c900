//! Places where a lock is seldom asked for: users that may not run a single command, clients that are
//! closed in every state, nodes that are away for a moment, servers that load their data when a
//! connection to them is made anew.

mod away;
mod closing;
mod elsewhere;
mod loading;
mod rights;
