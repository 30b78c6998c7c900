//! TLS over a stream, by rustls with the ring provider. The provider is named each time: that of the process
//! is the application's own affair.

use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use rustls_native_certs::load_native_certs;
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A configuration with the system's root certificates as they are now: who runs for months sees them
/// renewed.
pub(super) async fn system_roots() -> io::Result<Arc<ClientConfig>> {
    // It reads files, and parses them.
    let config = spawn_blocking(load).await.map_err(io::Error::other)?;
    Ok(Arc::new(config?))
}

fn load() -> io::Result<ClientConfig> {
    let mut found = load_native_certs();
    if let Some(error) = found.errors.pop() {
        return Err(io::Error::other(error));
    }
    let mut roots = RootCertStore::empty();
    for root in found.certs {
        roots.add(root).map_err(io::Error::other)?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Makes `stream` one to the server `host`, which has to prove that it is that one.
pub(super) async fn shake_hands(
    config: Arc<ClientConfig>,
    host: &str,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(host).map_err(io::Error::other)?.to_owned();
    TlsConnector::from(config).connect(name, stream).await
}

/// Why a server whose certificate is not to be looked at is not connected to.
pub(super) fn insecure() -> io::Error {
    io::Error::other("#insecure is not supported: give the certificates to trust to tls()")
}
