//! TLS streams with rustls and its ring provider.
//!
//! Each configuration selects the provider explicitly, because the process-wide default belongs to the application.

use super::socket::Socket;
use crate::wire::NO_TLS;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, DEFAULT_VERSIONS, InvalidMessage, RootCertStore};
use rustls_native_certs::load_native_certs;
use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The PEM files that configure TLS. Without `ca_cert`, the client trusts the system's root certificates. Without
/// `cert` and `key`, the client sends no certificate to servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) ca_cert: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

#[derive(Debug)]
pub(crate) struct BadFile {
    pub(crate) setting: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) reason: String,
}

impl BadFile {
    fn new(setting: &'static str, path: &Path, reason: &dyn Display) -> Self {
        Self { setting, path: path.to_owned(), reason: reason.to_string() }
    }
}

impl From<BadFile> for io::Error {
    fn from(BadFile { setting, path, reason }: BadFile) -> Self {
        Self::other(format!("{setting} {}: {reason}", path.display()))
    }
}

impl TlsFiles {
    /// Creates a configuration from the current contents of the files. Without `ca_cert`, loads the system's current
    /// root certificates. Each connection loads them again, because certificates may be replaced while a client runs.
    pub(super) async fn load(&self) -> io::Result<Arc<ClientConfig>> {
        let files = self.clone();
        // Reading and parsing the files blocks the thread.
        let load = move || -> io::Result<ClientConfig> {
            let roots = match files.roots()? {
                Some(roots) => roots,
                None => system_roots()?,
            };
            Ok(files.config(roots)?)
        };
        Ok(Arc::new(spawn_blocking(load).await.map_err(io::Error::other)??))
    }

    /// Checks that the files can be read and parsed. Fails with the first file that cannot be used.
    pub(crate) fn check(&self) -> Result<(), BadFile> {
        let roots = self.roots()?.unwrap_or_else(RootCertStore::empty);
        self.config(roots).map(drop)
    }

    fn roots(&self) -> Result<Option<RootCertStore>, BadFile> {
        let Some(path) = &self.ca_cert else { return Ok(None) };
        let mut roots = RootCertStore::empty();
        for root in certificates(CA_CERT, path)? {
            roots.add(root).map_err(|error| BadFile::new(CA_CERT, path, &error))?;
        }
        Ok(Some(roots))
    }

    fn config(&self, roots: RootCertStore) -> Result<ClientConfig, BadFile> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(DEFAULT_VERSIONS)
            .map_err(|error| BadFile::new("TLS", Path::new(""), &error))?
            .with_root_certificates(roots);
        let (Some(cert), Some(path)) = (&self.cert, &self.key) else {
            return Ok(config.with_no_client_auth());
        };
        let chain = certificates(CERT, cert)?;
        // The parser's error is omitted, because it may repeat lines of the file.
        let key = PrivateKeyDer::from_pem_slice(&read(KEY, path)?)
            .map_err(|_| BadFile::new(KEY, path, &"no unencrypted private key in PEM format"))?;
        config.with_client_auth_cert(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                BadFile::new(KEY, path, &"does not match the certificate in tls_cert_file")
            }
            other => BadFile::new(KEY, path, &other),
        })
    }
}

const CA_CERT: &str = "tls_ca_cert_file";
const CERT: &str = "tls_cert_file";
const KEY: &str = "tls_key_file";

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, BadFile> {
    fs::read(path).map_err(|error| BadFile::new(setting, path, &error))
}

/// Reads the certificates of a file. Fails if the file contains no certificate.
fn certificates(
    setting: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, BadFile> {
    let pem = read(setting, path)?;
    let found = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let found = found.ok().filter(|found| !found.is_empty());
    found.ok_or_else(|| BadFile::new(setting, path, &"no certificate in PEM format"))
}

fn system_roots() -> io::Result<RootCertStore> {
    let mut found = load_native_certs();
    if let Some(error) = found.errors.pop() {
        return Err(io::Error::other(error));
    }
    let mut roots = RootCertStore::empty();
    for root in found.certs {
        roots.add(root).map_err(io::Error::other)?;
    }
    Ok(roots)
}

/// Performs the TLS handshake and verifies that the certificate matches `host`.
pub(super) async fn shake_hands(
    config: Arc<ClientConfig>,
    host: &str,
    stream: Socket<TcpStream>,
) -> io::Result<TlsStream<Socket<TcpStream>>> {
    let name = ServerName::try_from(host).map_err(io::Error::other)?.to_owned();
    let shaken = TlsConnector::from(config).connect(name, stream).await;
    shaken.map_err(|error| if is_no_tls(&error) { io::Error::other(NO_TLS) } else { error })
}

fn is_no_tls(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref());
    matches!(error, Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)))
}
