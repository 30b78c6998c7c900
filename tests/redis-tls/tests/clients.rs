//! Clients of a `redis` crate that has TLS.

use quorlock::{Builder, ConfigError, Redlock};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use redis::{Client, ClientTlsConfig, TlsCertificates};

fn builder(client: Client) -> Builder {
    Redlock::builder().nodes(["redis://10.0.0.1", "redis://10.0.0.2"]).clients([client])
}

#[test]
fn certificates_that_cannot_be_read_are_refused_and_not_lost() {
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
        let refused = builder(client).build().expect_err("they would be lost");
        assert_eq!(refused, ConfigError::OpaqueTls { name: "example.org:7000".into() });
        let said = refused.to_string();
        assert!(said.contains("nodes()") && said.contains("tls()"), "{said}");
    }
}

#[test]
fn a_client_without_certificates_is_taken() {
    for url in ["rediss://example.org:7000", "redis://example.org:7000"] {
        let client = Client::open(url).expect("a client");
        let redlock = builder(client).build().expect("there is nothing to lose");
        assert_eq!(redlock.nodes()[2].name(), "example.org:7000");
    }
}
