//! State of one client connection.

use crate::server_model::request::RequestReader;
use crate::server_model::tracking::Mode;

#[derive(Debug)]
pub(crate) struct ClientSession {
    pub(crate) client_id: u64,
    /// Set by `CLIENT SETNAME` or `HELLO … SETNAME`.
    pub(crate) name: String,
    pub(crate) requests: RequestReader,
    pub(crate) resp3: bool,
    pub(crate) user: Option<String>,
    pub(crate) db: u32,
    pub(crate) tracking: Option<Mode>,
    /// True from `CLIENT CACHING YES` until the end of the next command other than a `CLIENT`
    /// command.
    pub(crate) is_caching: bool,
    /// True if the server closes the connection after the current reply.
    pub(crate) is_ending: bool,
}

impl ClientSession {
    pub(crate) fn new(client_id: u64, needs_password: bool) -> Self {
        Self {
            client_id,
            name: String::new(),
            requests: RequestReader::default(),
            resp3: false,
            user: (!needs_password).then(|| "default".to_owned()),
            db: 0,
            tracking: None,
            is_caching: false,
            is_ending: false,
        }
    }

    pub(crate) fn tracks_reads(&self) -> bool {
        self.tracking.is_some_and(|mode| !mode.opt_in || self.is_caching)
    }
}
