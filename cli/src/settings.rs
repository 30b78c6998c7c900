//! Errors in settings, with the settings named as options, variables and file keys.

use quorlock::ConfigError;

/// The message of `error`. The library's own message names methods of its builder, which do not exist in a shell.
pub(crate) fn message(error: &ConfigError) -> String {
    match error {
        ConfigError::BadTtl { setting, ttl } => {
            format!("invalid {} {ttl:?}: must be between 1 ms and 100 years", named(setting))
        }
        ConfigError::TtlExceedsMax { ttl, max_ttl } => format!(
            "{} {ttl:?} exceeds {} {max_ttl:?}: reduce the ttl, or first increase the maximum on all clients of \
             these nodes",
            named("ttl"),
            named("max_ttl")
        ),
        ConfigError::AtLeastExceedsTtl { at_least, ttl } => {
            format!(
                "--at-least {at_least:?} exceeds the ttl of {ttl:?}: reduce it, or increase --ttl"
            )
        }
        ConfigError::TokenTtlBelowMax { token_ttl, max_ttl } => format!(
            "{} {token_ttl:?} is shorter than {} {max_ttl:?}: increase it",
            named("token_ttl"),
            named("max_ttl")
        ),
        ConfigError::BadDriftFactor { factor } => {
            format!("invalid {} {factor}: must be at least 0 and below 1", named("drift_factor"))
        }
        ConfigError::DriftExceedsTtl { ttl, drift } => format!(
            "the ttl of {ttl:?} must exceed its drift allowance of {drift:?}: increase {}, or reduce {} or {}",
            named("ttl"),
            named("drift_factor"),
            named("drift_constant")
        ),
        ConfigError::NodeTimeoutExceedsValidity { node_timeout, ttl, validity } => format!(
            "the node timeout of {node_timeout:?} must be shorter than {validity:?}, the validity of a ttl of \
             {ttl:?}: reduce {} or increase {}",
            named("node_timeout"),
            named("ttl")
        ),
        ConfigError::MaxHoldTooShort { max_hold, node_timeout } => format!(
            "--max-hold {max_hold:?} must exceed the node timeout of {node_timeout:?}: increase --max-hold"
        ),
        ConfigError::TooManyResources { given, most } => {
            format!("{given} resources given, at most {most} can be locked together")
        }
        ConfigError::LongMetadata { length, most } => {
            format!("{} has {length} bytes, at most {most} are allowed", named("metadata"))
        }
        ConfigError::ReservedPrefix { prefix } => format!(
            "invalid {} {prefix:?}: no key may contain \"#quorlock:\", which is reserved for fencing counters and \
             other internal keys",
            named("key_prefix")
        ),
        ConfigError::OwnerAndMetadata => {
            format!("{} and {} are both set: unset one", named("owner"), named("metadata"))
        }
        ConfigError::ZeroTimeout { setting } => {
            format!("{} is zero: use a positive duration", named(setting))
        }
        ConfigError::BadTlsFile { setting, path, reason } => {
            let reason = reason.replace("tls_cert_file", &named("tls_cert_file"));
            format!("{} {}: {reason}", named(setting), path.display())
        }
        ConfigError::IncompleteTlsFiles { missing } => format!(
            "{} is not set: {} and {} must be set together",
            named(missing),
            named("tls_cert_file"),
            named("tls_key_file")
        ),
        ConfigError::NoNodes => "no nodes: use --node, --nodes-file or QUORLOCK_NODES".to_owned(),
        other => other.to_string(),
    }
}

/// The name of a setting: its option, if it has one, and its environment variable. The key in a file is the name of the
/// variable in lower case, without the prefix.
fn named(setting: &str) -> String {
    let variable = format!("QUORLOCK_{}", setting.to_ascii_uppercase());
    match setting {
        "tls_ca_cert_file" => format!("--cacert ({variable})"),
        "tls_cert_file" => format!("--cert ({variable})"),
        "tls_key_file" => format!("--key ({variable})"),
        "ttl" | "max_ttl" | "metadata" => format!("--{} ({variable})", setting.replace('_', "-")),
        _ => variable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_named_by_option_and_variable() {
        for (setting, name) in [
            ("ttl", "--ttl (QUORLOCK_TTL)"),
            ("max_ttl", "--max-ttl (QUORLOCK_MAX_TTL)"),
            ("node_timeout", "QUORLOCK_NODE_TIMEOUT"),
        ] {
            assert_eq!(named(setting), name);
        }
    }
}
