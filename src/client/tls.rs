//! The TLS settings: a `rustls` configuration, or certificate files.

use super::builder::Builder;
use crate::error::ConfigError;
use crate::transport::{BadFile, Sockets, Tls, TlsFiles};
use std::path::PathBuf;
use std::sync::Arc;

impl Builder {
    /// Sets the TLS configuration for nodes with a `rediss://` URL, for example to use certificates from memory or a
    /// different cryptography provider. Replaces certificate files that were set earlier. By default, the client
    /// verifies the server's certificate with the system's root certificates and sends no client certificate.
    ///
    /// ```
    /// use quorlock::Redlock;
    /// use rustls::pki_types::pem::PemObject;
    /// use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    /// use rustls::{ClientConfig, RootCertStore};
    ///
    /// # let (dir, made) = (tempfile::tempdir()?, rcgen::generate_simple_self_signed(["locks".to_owned()])?);
    /// # std::env::set_current_dir(&dir)?;
    /// # ["ca.pem", "client.pem"].iter().try_for_each(|name| std::fs::write(name, made.cert.pem()))?;
    /// # std::fs::write("client.key", made.signing_key.serialize_pem())?;
    /// let mut roots = RootCertStore::empty();
    /// for root in CertificateDer::pem_file_iter("ca.pem")? {
    ///     roots.add(root?)?;
    /// }
    /// let ours = CertificateDer::pem_file_iter("client.pem")?.collect::<Result<Vec<_>, _>>()?;
    /// let key = PrivateKeyDer::from_pem_file("client.key")?;
    /// let tls = ClientConfig::builder()
    ///     .with_root_certificates(roots)
    ///     .with_client_auth_cert(ours, key)?; // or with_no_client_auth()
    /// let redlock = Redlock::builder()
    ///     .nodes(["rediss://10.0.0.1", "rediss://10.0.0.2", "rediss://10.0.0.3"])
    ///     .tls(tls)
    ///     .build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Requires the feature `rustls-0-23`, which re-exports version 0.23 of the `rustls` crate as `quorlock::rustls`.
    /// `config` must be a `ClientConfig` of this version.
    #[cfg(feature = "rustls-0-23")]
    pub fn tls(mut self, config: impl Into<Arc<rustls::ClientConfig>>) -> Self {
        self.config.tls_ca_cert_file = None;
        (self.config.tls_cert_file, self.config.tls_key_file) = (None, None);
        self.environment.transport = Arc::new(Sockets::with_tls(Tls::Config(config.into())));
        self
    }

    /// Sets the PEM file with the certificates to trust, in place of the system's root certificates.
    ///
    /// [`build`](Self::build) reads the TLS files and rejects invalid ones. Each new connection reads the files again,
    /// so that a renewed certificate takes effect without a restart. If a file has become invalid, the connection
    /// fails, and the error contains the reason.
    pub fn tls_ca_cert_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.config.tls_ca_cert_file = Some(path.into());
        self
    }

    /// Sets the PEM file with the certificate chain that the client sends to servers that request one. The client's own
    /// certificate must be the first one in the file. Requires [`tls_key_file`](Self::tls_key_file).
    pub fn tls_cert_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.config.tls_cert_file = Some(path.into());
        self
    }

    /// Sets the PEM file with the unencrypted private key of the certificate in [`tls_cert_file`](Self::tls_cert_file).
    pub fn tls_key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.config.tls_key_file = Some(path.into());
        self
    }

    pub(super) fn with_tls_files(mut self) -> Result<Self, ConfigError> {
        let files = TlsFiles {
            ca_cert: self.config.tls_ca_cert_file.clone(),
            cert: self.config.tls_cert_file.clone(),
            key: self.config.tls_key_file.clone(),
        };
        let missing = match (&files.cert, &files.key) {
            (Some(_), None) => Some("tls_key_file"),
            (None, Some(_)) => Some("tls_cert_file"),
            _ => None,
        };
        if let Some(missing) = missing {
            return Err(ConfigError::IncompleteTlsFiles { missing });
        }
        if files != TlsFiles::default() {
            files.check().map_err(|BadFile { setting, path, reason }| ConfigError::BadTlsFile {
                setting,
                path,
                reason,
            })?;
            self.environment.transport = Arc::new(Sockets::with_tls(Tls::Files(files)));
        }
        Ok(self)
    }
}
