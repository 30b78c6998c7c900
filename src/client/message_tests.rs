//! Checks that errors for invalid settings name the cause and contain no secret.

use super::*;
use crate::Config;
use proptest::prelude::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn said(builder: Builder) -> String {
    builder.build().expect_err("must be refused").to_string()
}

#[test]
fn invalid_url_error_names_the_cause() {
    for (url, cause) in [
        ("", "no scheme: begin the URL with redis://"),
        ("a:6379,b:6379", "no scheme: begin the URL with redis://"),
        ("redis://a redis://b", "use redis://user:password@host"),
        ("redis://a, redis://me:secret@b", "reserved characters"),
        ("http://10.0.0.1", "unsupported scheme"),
        ("10.0.0.1:6379", "no scheme: begin the URL with redis://"),
        ("redis:10.0.0.1", "no scheme: begin the URL with redis://"),
        ("redis://", "use redis://user:password@host"),
        ("redis://:6379", "use redis://user:password@host"),
        ("redis://me:secret@", "use redis://user:password@host"),
        ("redis://10.0.0.1:99999", "use redis://user:password@host"),
        ("redis://10.0.0.1:port/2", "use redis://user:password@host"),
        ("redis://[::1]:70000", "use redis://user:password@host"),
        ("redis://[::1", "use redis://user:password@host"),
        ("redis://a b", "use redis://user:password@host"),
        ("redis://0.0.0.0", "use redis://user:password@host"),
        ("redis://10.0.0.1/first", "use redis://user:password@host"),
        ("redis://10.0.0.1?protocol=4", "use redis://user:password@host"),
        ("redis://10.0.0.1#insecure", "unexpected #: "),
        ("redis://a,redis://b", "several URLs in one string: pass one URL per node"),
        ("redis://a,b:6380", "several URLs in one string: pass one URL per node"),
        ("redis://a:1,b:2", "several URLs in one string: pass one URL per node"),
        ("redis://me:sec#ret@10.0.0.1", "percent-encode them"),
        ("redis://me:sec/ret@10.0.0.1:6379/2", "percent-encode them"),
        ("redis://me:sec?ret@10.0.0.1", "percent-encode them"),
        ("redis://me:12#34@10.0.0.1", "percent-encode them"),
        ("redis://me:se@cret@10.0.0.1", "@ as %40"),
        ("redis://me@corp:secret@10.0.0.1", "@ as %40"),
        ("rediss://:se@c@ret", "@ as %40"),
        ("redis://me:se\u{7}cret@10.0.0.1", "percent-encode it"),
        ("redis://me:%ff@10.0.0.1", "a % as %25"),
        ("unix:///tmp/redis.sock?db=first", "use redis://user:password@host"),
        ("unix:///tmp/a#b", "unexpected #: "),
        ("redis://10.0.0.1?db=first", "must be a database number"),
        ("redis://10.0.0.1?db=-1", "must be a database number"),
        ("redis://10.0.0.1/4?db=5", "several databases"),
        ("redis://10.0.0.1?db=5&db=5", "several databases"),
        ("unix://", "no path: "),
        ("unix://me:secret@/tmp/a", "no path: "),
    ] {
        let said = Redlock::builder().nodes([url]).build().expect_err(url).to_string();
        assert!(
            said.starts_with("invalid URL of node 1: ") && said.contains(cause),
            "{url}: {said}"
        );
        assert!(!said.contains("secret") && !said.contains("sec"), "{said}");
    }
}

#[test]
fn url_with_special_characters_is_parsed() {
    for (url, name) in [
        (" redis://10.0.0.1\n", "10.0.0.1:6379"),
        ("redis://me:pass,word@example.org:7000/3", "example.org:7000"),
        ("redis://:p%40ss:[word]@[::1]:7000", "::1:7000"),
        ("valkey://example.org/?protocol=resp3", "example.org:6379"),
        ("unix:///tmp/redis@home,1.sock?db=2&user=me&pass=a@b", "/tmp/redis@home,1.sock"),
    ] {
        let redlock = Redlock::builder().nodes([url]).build();
        let redlock = redlock.unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(redlock.nodes()[0].name(), name);
    }
}

#[test]
fn database_is_read_from_the_path_or_the_db_parameter() {
    for (url, db) in [
        ("redis://10.0.0.1", 0),
        ("redis://10.0.0.1/5", 5),
        ("redis://10.0.0.1?db=5", 5),
        ("redis://10.0.0.1/5/?protocol=3&db=5", 5),
        ("valkey://me:secret@10.0.0.1:7000/5?protocol=resp3", 5),
        ("unix:///tmp/redis.sock?db=5&user=me&pass=secret", 5),
        ("redis+unix:///tmp/redis.sock?protocol=3", 0),
    ] {
        let builder = Redlock::builder().nodes([url]);
        let (_, login) = builder.nodes[0].as_ref().unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(login.db(), db, "{url}");
    }
}

#[test]
fn unknown_url_parameter_is_refused() {
    for url in [
        "redis://10.0.0.1?timeout=5",
        "redis://me:secret@h:7000/2?protocol=3&ssl=true",
        "redis://h?user=me&pass=secret",
        "redis://h?hunter2",
        "unix:///tmp/r.sock?password=secret",
    ] {
        let text = Redlock::builder().nodes([url]).build().expect_err(url).to_string();
        assert!(text.contains("unknown parameter") && !text.contains("secret"), "{text}");
    }
}

/// Generates a password that contains the markers `hunter2` and `tail99`. The tests check that no error contains a
/// marker. If the flag is true, the tests use the password as the user name.
fn password() -> impl Strategy<Value = (String, bool)> {
    let reserved =
        prop::sample::select(":/?#[]@!$&'()*+,;=%\\^`{|}<>\" \t\né".chars().collect::<Vec<_>>());
    let character = prop_oneof![reserved, any::<char>()];
    (prop::collection::vec(character, 1..6), any::<bool>()).prop_map(|(middle, is_user)| {
        (format!("hunter2{}tail99", String::from_iter(middle)), is_user)
    })
}

proptest! {
    #[test]
    fn passwords_are_parsed_exactly_and_hidden((password, is_user) in password(), is_second in any::<bool>()) {
        let secret = if is_user { format!("{password}:walter") } else { format!("walter:{password}") };
        let url = format!("redis://{secret}@10.0.0.1:7000/3");
        let urls = if is_second { vec!["redis://10.0.0.2".to_owned(), url] } else { vec![url] };
        let builder = Redlock::builder().nodes(&urls);
        let mut shown = vec![format!("{builder:?} {builder:#?}")];
        match &builder.nodes[urls.len() - 1] {
            Ok((address, login)) => {
                prop_assert_eq!(address.to_string(), "10.0.0.1:7000");
                let read = if is_user { login.username() } else { login.password() };
                // The user name ends at the first colon, and percent-encoded characters are decoded.
                let is_altered = password.contains('%') || is_user && password.contains(':');
                prop_assert!(is_altered || read == Some(&*password), "{:?}", read);
            }
            Err(error) => shown.push(format!("{error} {error:?} {error:#?}")),
        }
        match builder.build() {
            Ok(redlock) => shown.push(format!("{redlock:?} {:?}", redlock.nodes())),
            Err(error) => shown.push(format!("{error} {error:?}")),
        }
        let shown = shown.concat();
        for part in ["hunter2", "tail99", "walter"] {
            prop_assert!(!shown.contains(part), "{}", shown);
        }
    }
}

/// Returns texts that a user might pass as the URL of a node. Each text contains `secret`, and most are not valid URLs.
fn texts_around(secret: &str) -> [String; 18] {
    [
        format!("10.0.0.1:6380,password={secret},ssl=True"),
        format!("redis://:{secret}"),
        format!("redis://:{secret}@"),
        format!("redis://walter:{secret}"),
        format!("redis-cli -a {secret} -h 10.0.0.1"),
        format!("redis-cli -u redis://:{secret}@10.0.0.1"),
        format!("{secret}@10.0.0.1"),
        secret.to_string(),
        format!("10.0.0.1 {secret}"),
        format!("redis://10.0.0.1 {secret}"),
        format!("redis://10.0.0.1,{secret}"),
        format!("redis://10.0.0.1?password={secret}"),
        format!("redis://10.0.0.1?password=x@{secret}"),
        format!("redis://10.0.0.1/{secret}"),
        format!("redis://10.0.0.1#{secret}"),
        format!("unix:///run/redis.sock?password={secret}"),
        format!("unix://me:{secret}@/run/redis.sock"),
        format!("http://walter:{secret}@10.0.0.1/{secret}"),
    ]
}

proptest! {
    #[test]
    fn config_errors_never_contain_a_secret(
        text in 0..18_usize,
        (before, after) in ("[ -~]{0,6}", "[ -~]{0,6}"),
        has_letters_around in any::<bool>(),
    ) {
        let text = &texts_around("hunter2tail99")[text];
        let text = if has_letters_around { format!("{before}{text}{after}") } else { text.clone() };
        let builder = Redlock::builder().nodes([&text]);
        let mut shown = format!("{builder:?} {:?}", Config::new([&text]));
        if let Err(error) = builder.build() {
            shown = format!("{shown} {error} {error:?} {error:#?}");
            prop_assert!(!shown.contains("hunter2") && !shown.contains("tail99"), "{}", shown);
        }
    }
}

#[test]
fn invalid_number_error_names_its_setting() {
    let one = || Redlock::builder().nodes(["redis://10.0.0.1"]);
    for (builder, names) in [
        (one().ttl(Duration::ZERO), "ttl 0ns"),
        (one().ttl(Duration::MAX), "ttl "),
        (one().max_ttl(Duration::ZERO), "max_ttl 0ns"),
        (one().max_ttl(Duration::MAX), "max_ttl "),
        (one().token_ttl(Duration::ZERO), "token_ttl 0ns"),
        (one().token_ttl(Duration::MAX), "token_ttl "),
        (one().node_timeout(Duration::ZERO), "node_timeout is zero"),
        (one().node_timeout(Duration::MAX), "reduce node_timeout() or increase ttl()"),
        (one().connect_timeout(Duration::ZERO), "connect_timeout is zero"),
        (one().drift_factor(-1.0), "drift factor -1"),
        (one().drift_factor(f64::NAN), "drift factor NaN"),
        (one().drift_factor(0.999_999_9), "drift_factor() or drift_constant()"),
        (one().drift_constant(Duration::MAX), "drift_factor() or drift_constant()"),
        (one().metadata("m".repeat(5_000)), "metadata has 5000 bytes"),
    ] {
        let said = said(builder);
        assert!(said.contains(names), "{names}: {said}");
    }
    // The error names `ttl`, which the test sets, and not `max_ttl`, which limits it.
    let said = said(one().ttl(ms(60_001)));
    assert!(said.starts_with("ttl 60.001s exceeds max_ttl 60s"), "{said}");
}
