use super::*;
use crate::client::RestartGuard;
use crate::protocol::RetryPolicy;
use std::time::Duration;

const NODES: (&str, &str) = ("LOCKS_NODES", "redis://me:topsecret@10.0.0.1,redis://10.0.0.2");

fn read_from(prefix: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
    Config::from_variables(prefix, variables)
}

fn refused(variables: &[(&str, &str)]) -> ConfigError {
    read_from("LOCKS", variables).expect_err("must be refused")
}

#[test]
fn set_variables_override_and_unset_variables_keep_settings() {
    let least =
        read_from("LOCKS", &[NODES, ("PATH", "/bin"), ("LOCKSMITH", "no"), ("LOCKS", "no")]);
    let nodes = ["redis://me:topsecret@10.0.0.1", "redis://10.0.0.2"];
    let defaults = Config::new(nodes);
    assert_eq!(format!("{:?}", least.expect("good variables")), format!("{defaults:?}"));

    let seconds = Duration::from_secs;
    let all = [
        NODES,
        ("LOCKS_TTL", "5s"),
        ("LOCKS_MAX_TTL", "1m 30s"),
        ("LOCKS_RESTART_GUARD", "strict"),
        ("LOCKS_TRUST_PERSISTENCE", "true"),
        ("LOCKS_WAIT", "7s"),
        ("LOCKS_NODE_TIMEOUT", "8s"),
        ("LOCKS_CONNECT_TIMEOUT", "9s"),
        ("LOCKS_DRIFT_FACTOR", "0.02"),
        ("LOCKS_DRIFT_CONSTANT", "11s"),
        ("LOCKS_RETRY", "fixed 100ms"),
        ("LOCKS_OWNER", "false"),
        ("LOCKS_FENCED", "true"),
        ("LOCKS_TOKEN_TTL", "24h"),
        ("LOCKS_KEY_PREFIX", "app:"),
        ("LOCKS_METADATA", ""),
        #[cfg(feature = "tls-rustls")]
        ("LOCKS_TLS_CA_CERT_FILE", "/ca.pem"),
        #[cfg(feature = "tls-rustls")]
        ("LOCKS_TLS_CERT_FILE", "/cert.pem"),
        #[cfg(feature = "tls-rustls")]
        ("LOCKS_TLS_KEY_FILE", "/key.pem"),
    ];
    let expected = Config {
        ttl: Some(seconds(5)),
        max_ttl: Some(seconds(90)),
        restart_guard: Some(RestartGuard::Strict),
        trust_persistence: Some(true),
        wait: Some(seconds(7)),
        node_timeout: Some(seconds(8)),
        connect_timeout: Some(seconds(9)),
        drift_factor: Some(0.02),
        drift_constant: Some(seconds(11)),
        retry: Some(RetryPolicy::fixed(Duration::from_millis(100))),
        key_prefix: Some("app:".to_owned()),
        metadata: Some(String::new()),
        owner: Some(false),
        fenced: Some(true),
        token_ttl: Some(Duration::from_hours(24)),
        #[cfg(feature = "tls-rustls")]
        tls_ca_cert_file: Some("/ca.pem".into()),
        #[cfg(feature = "tls-rustls")]
        tls_cert_file: Some("/cert.pem".into()),
        #[cfg(feature = "tls-rustls")]
        tls_key_file: Some("/key.pem".into()),
        ..Config::new(nodes)
    };
    let ConfigError::UnknownVariable { known, .. } = refused(&[("LOCKS_X", "")]) else {
        panic!("no setting")
    };
    assert_eq!(known, all.map(|(name, _)| name).join(", "));
    for prefix in ["LOCKS", "LOCKS_"] {
        let read = read_from(prefix, &all).expect("good variables");
        assert_eq!(format!("{read:?}"), format!("{expected:?}"));
        assert_eq!(read.nodes, nodes);
    }
}

#[test]
fn unknown_variable_is_rejected_by_name() {
    for name in ["LOCKS_TLL", "LOCKS_ttl", "LOCKS_", "LOCKS_TTL_"] {
        let error = refused(&[NODES, (name, "topsecret")]);
        let told = error.to_string();
        assert!(matches!(&error, ConfigError::UnknownVariable { name: it, .. } if it == name));
        assert!(told.contains("LOCKS_TTL, ") && !told.contains("secret"), "{told}");
    }
    assert_eq!(refused(&[]), ConfigError::MissingVariable { name: "LOCKS_NODES".to_owned() });
    assert_eq!(refused(&[("LOCKS_NODES", " ,")]), refused(&[]));
    for prefix in ["", "_"] {
        assert_eq!(read_from(prefix, &[NODES]).expect_err("none"), ConfigError::EmptyPrefix);
    }
}

#[test]
fn invalid_value_error_names_the_variable_and_hides_the_value() {
    for (name, value, expected) in [
        ("LOCKS_TTL", "17topsecret", "a duration with its unit, such as 10s, 250ms or 1m 30s"),
        ("LOCKS_WAIT", "", "a duration with its unit"),
        ("LOCKS_DRIFT_FACTOR", "1%", "a number such as 0.01"),
        ("LOCKS_RETRY", "topsecret", "jittered 50ms..250ms"),
        ("LOCKS_RESTART_GUARD", "Off", "observed, strict or off"),
        ("LOCKS_FENCED", "1", "true or false"),
        ("LOCKS_NODES", "redis://a,redis://me:topsecret@b:c", "invalid URL of node 2"),
        ("LOCKS_NODES", "redis://me:top secret,x@b:c", "invalid URL of node 1: "),
    ] {
        let mut variables = vec![NODES];
        variables.retain(|(known, _)| *known != name);
        variables.push((name, value));
        let told = refused(&variables).to_string();
        let begin = format!("invalid value of environment variable {name}: ");
        assert!(told.starts_with(&begin) && told.contains(expected), "{told}");
        assert!(!told.contains("secret") && !told.contains("top"), "{told}");
    }
}

#[test]
fn node_list_is_split_where_a_url_begins() {
    let password = "redis://me:pass,word@10.0.0.1";
    let nodes = format!(" {password}, ,unix:///run/redis,\nredis://10.0.0.2 ");
    let read = read_from("LOCKS", &[("LOCKS_NODES", &nodes)]).expect("good variables");
    assert_eq!(read.nodes, [password, "unix:///run/redis", "redis://10.0.0.2"]);
}

#[test]
fn variables_set_by_the_command_are_ignored() {
    let told = [("QUORLOCK_RESOURCE", "orders/42"), ("QUORLOCK_TOKEN", "7"), ("QUORLOCK_HELD", "")];
    let nodes = ("QUORLOCK_NODES", NODES.1);
    for told in told {
        let read = read_from("QUORLOCK", &[nodes, told]).expect("good variables");
        assert_eq!(format!("{read:?}"), format!("{:?}", Config::new(read.nodes.clone())));
        // With any other prefix, the names of these variables are unknown settings.
        let name = told.0.replace("QUORLOCK", "LOCKS");
        let error = refused(&[NODES, (&name, told.1)]);
        assert!(matches!(&error, ConfigError::UnknownVariable { name: it, .. } if *it == name));
    }
}

#[test]
fn variables_override_the_config() {
    let seconds = Duration::from_secs;
    let file = Config {
        ttl: Some(seconds(5)),
        wait: Some(seconds(6)),
        key_prefix: Some("file:".to_owned()),
        ..Config::new(["redis://10.0.0.9"])
    };
    let with = |variables: &[(&str, &str)]| {
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        file.clone().with_variables("LOCKS", variables)
    };
    for none in [&[][..], &[("LOCKS_NODES", " ,")], &[("QUORLOCK_TTL", "7s")]] {
        assert_eq!(format!("{:?}", with(none).expect("good variables")), format!("{file:?}"));
    }
    let set =
        with(&[NODES, ("LOCKS_TTL", "7s"), ("LOCKS_FENCED", "true")]).expect("good variables");
    let expected = Config {
        nodes: NODES.1.split(',').map(str::to_owned).collect(),
        ttl: Some(seconds(7)),
        fenced: Some(true),
        ..file.clone()
    };
    assert_eq!(format!("{set:?}"), format!("{expected:?}"));
    for bad in [("LOCKS_TTL", "7"), ("LOCKS_TLL", "7s"), ("LOCKS_NODES", "redis://a:b")] {
        assert_eq!(with(&[bad]).expect_err("must be refused"), refused(&[bad]));
    }
    assert!(Config::default().with_variables("LOCKS", []).expect("nothing").nodes.is_empty());
}

#[cfg(unix)]
#[test]
fn variable_that_is_not_unicode_is_rejected() {
    use std::os::unix::ffi::OsStringExt;
    let odd = || OsString::from_vec(b"\xff\xfe".to_vec());
    let read = Config::from_variables("LOCKS", [("LOCKS_TTL".into(), odd())]);
    let reason = "not valid UTF-8".to_owned();
    let bad = ConfigError::BadVariable { name: "LOCKS_TTL".to_owned(), reason };
    assert_eq!(read.expect_err("no text"), bad);
    // Variables without the prefix may contain invalid UTF-8.
    let read = Config::from_variables("LOCKS", [(odd(), odd()), (NODES.0.into(), NODES.1.into())]);
    assert!(read.is_ok());
}
