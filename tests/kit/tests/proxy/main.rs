//! Each fault of the proxy does what it says.

mod bytes;
mod connections;
mod line;
mod servers;
