//! Helpers that start nodes with TLS.
#![cfg(feature = "rustls-0-23")]

use crate::builder_of;
use kit::{Cluster, Server, TlsFiles};
use quorlock::Builder;
use rcgen::generate_simple_self_signed;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Starts nodes with TLS. Returns the nodes, and settings of a client that trusts their certificate. Returns `None` if
/// the installed server was built without TLS.
pub(crate) fn cluster(nodes: usize, dir: &Path) -> Option<(Cluster, Builder)> {
    if !Server::builder().supports_tls() {
        eprintln!("skipped: this server was built without TLS");
        return None;
    }
    let own = generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let [cert, key, ca] = ["cert.pem", "key.pem", "ca.pem"].map(|name| dir.join(name));
    fs::write(&cert, own.cert.pem()).expect("a writable directory");
    fs::write(&key, own.signing_key.serialize_pem()).expect("a writable directory");
    fs::write(&ca, own.cert.pem()).expect("a writable directory");
    let cluster = Cluster::start_with(nodes, &Server::builder().tls(TlsFiles { cert, key, ca }));
    let mut roots = RootCertStore::empty();
    roots.add(own.cert.der().clone()).expect("a certificate");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("it has them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let builder = builder_of(cluster.iter().map(Server::url_tls)).tls(config);
    Some((cluster, builder))
}
