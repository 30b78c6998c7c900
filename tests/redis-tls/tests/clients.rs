//! Clients of a `redis` crate with TLS enabled.

use quorlock::{Builder, ConfigError, Redlock};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use redis::{Client, ClientTlsConfig, TlsCertificates};

fn builder(client: Client) -> Builder {
    Redlock::builder().nodes(["redis://10.0.0.1", "redis://10.0.0.2"]).clients([client])
}

#[test]
fn client_with_unreadable_certificates_is_refused() {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["example.org".to_owned()]).expect("a certificate");
    let pem = cert.pem().into_bytes();
    let client_key = signing_key.serialize_pem().into_bytes();
    let client_tls = Some(ClientTlsConfig { client_cert: pem.clone(), client_key });
    let none = TlsCertificates { client_tls: None, root_cert: None };
    for certificates in [
        TlsCertificates { root_cert: Some(pem), ..none.clone() },
        TlsCertificates { client_tls, ..none.clone() },
        none,
    ] {
        let url = "rediss://me:secret@example.org:7000";
        let client = Client::build_with_tls(url, certificates).expect("a client");
        let refused =
            builder(client).build().expect_err("the certificates cannot be read from the client");
        assert_eq!(refused, ConfigError::OpaqueTls { name: "example.org:7000".into() });
        let message = refused.to_string();
        assert!(message.contains("nodes()") && message.contains("tls()"), "{message}");
    }
}

#[test]
fn client_without_certificates_is_accepted() {
    for url in ["rediss://example.org:7000", "redis://example.org:7000"] {
        let client = Client::open(url).expect("a client");
        let redlock = builder(client).build().expect("the client has no certificates");
        assert_eq!(redlock.nodes()[2].name(), "example.org:7000");
    }
}
