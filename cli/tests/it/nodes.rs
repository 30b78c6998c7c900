//! Tests of the options, files and variables that contain node URLs, and of errors in them.

use crate::shell_session::ShellSession;
use kit::Cluster;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(TempDir::new().expect("a directory"))
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.0.path().join(name);
        fs::write(&path, text).expect("it is written");
        path.to_str().expect("text").to_owned()
    }

    fn dir(&self) -> &str {
        self.0.path().to_str().expect("text")
    }
}

#[test]
fn missing_nodes_are_a_usage_error_with_advice() {
    let mut session = ShellSession::default();
    for arguments in [
        &["status", "a"][..],
        &["check"],
        &["release", "a", "--force"],
        &["hold", "a"],
        &["run", "a", "--", "true"],
        &["lead", "a", "--", "true"],
    ] {
        session.run(arguments);
    }
    let mut session = session.with("QUORLOCK_NODES", " ,");
    session.run(&["check"]);
    session.compare_with("nodes-none.txt");
}

#[test]
fn errors_about_a_node_contain_no_password() {
    let mut session = ShellSession::default();
    for urls in [
        &["redis://10.0.0.1:port"][..],
        &["10.0.0.1:6379"],
        &["http://10.0.0.1"],
        &["redis://10.0.0.1,redis://10.0.0.2"],
        &["redis://10.0.0.1", "redis://10.0.0.1:6379"],
        &["redis://me:topsecret@10.0.0.1"],
        &["redis://10.0.0.1", "rediss://:topsecret@10.0.0.2"],
        &["unix:///run/redis.sock?pass=topsecret"],
    ] {
        let options: Vec<&str> = urls.iter().flat_map(|url| ["--node", url]).collect();
        let output = session.run(&[&["check"], &options[..]].concat()).err;
        assert!(!output.contains("topsecret"), "{output}");
    }
    let mut session = session.with("QUORLOCK_NODES", "redis://me:topsecret@10.0.0.1:port");
    assert!(!session.run(&["check"]).err.contains("topsecret"));
    let mut session = session.with("QUORLOCK_NODES", "redis://me:top@se@cret");
    for verb in [&["check"][..], &["run", "r", "--", "true"]] {
        let output = session.run(verb).err;
        assert!(
            !["top", "se@", "@se", "cret"].iter().any(|part| output.contains(part)),
            "{output}"
        );
    }
    session.compare_with("nodes-refused.txt");
}

#[test]
fn errors_in_a_file_name_the_line_and_no_password() {
    let files = Files::new();
    let mut session = ShellSession::default();
    session.name("[DIR]", files.dir());
    for (name, text) in [
        ("empty", ""),
        ("comments", "# none yet\n"),
        ("no-scheme", "# ours\n10.0.0.1:6379\n10.0.0.2:6379\n"),
        ("bad-line", "redis://10.0.0.1\nme:topsecret@10.0.0.2\n"),
        ("bad-url", "# ours\nredis://me:topsecret@10.0.0.1:port\n"),
        ("several-at", "redis://10.0.0.1\nredis://me:topsecret@top@secret\n"),
        ("several-at-in-toml", "nodes = [\"redis://me:top@secret@10.0.0.1\"]\n"),
        ("twice", "redis://10.0.0.1\nredis://10.0.0.1\n"),
        (
            "unknown-key",
            "nodes = [\"redis://me:topsecret@10.0.0.1\"]\nttl = \"5s\"\ntll = \"5s\"\n",
        ),
        ("no-nodes", "ttl = \"5s\"\n"),
        ("no-list", "nodes = 3\n"),
        ("bad-list", "nodes = [\"redis://me:topsecret@10.0.0.1\", 3]\n"),
        ("open-list", "nodes = [\"redis://me:topsecret@10.0.0.1\"\n"),
        ("open-text", "nodes = [\"redis://me:topsecret@10.0.0.1\n"),
        ("bad-ttl", "nodes = [\"redis://10.0.0.1\"]\n\nttl = \"5\"\n"),
        ("long-ttl", "nodes = [\"redis://10.0.0.1\"]\nttl = \"5m\"\n"),
        ("both", "nodes = [\"redis://10.0.0.1\"]\nowner = true\nmetadata = \"me\"\n"),
    ] {
        let output = session.run(&["check", "--nodes-file", &files.write(name, text)]).err;
        assert!(!output.contains("topsecret"), "{output}");
    }
    let missing = format!("{}/missing", files.dir());
    session.run(&["check", "--nodes-file", &missing]);
    session.run(&["check", "--nodes-file", files.dir()]);
    session.run(&["check", "--nodes-file", &missing, "--node", "redis://10.0.0.1"]);
    session.compare_with("nodes-file.txt");
}

#[test]
fn invalid_variables_are_named() {
    let mut session = ShellSession::default().with("QUORLOCK_NODES", "redis://10.0.0.1");
    for (name, value) in [
        ("QUORLOCK_TLL", "5s"),
        ("QUORLOCK_TTL", "5"),
        ("QUORLOCK_TTL", "5m"),
        ("QUORLOCK_KEY_PREFIX", "#quorlock:"),
    ] {
        session.run_with(name, value, &["check"]);
    }
    session.compare_with("nodes-variables.txt");
}

/// A `#` without white space before it is a part of the URL. The text after the `#` may be a password, so error
/// messages must not contain this text.
#[test]
fn node_lists_accept_commas_and_comments() {
    let files = Files::new();
    let mut session = ShellSession::default();
    session.name("[DIR]", files.dir());
    for (name, text) in [
        ("one-line", "redis://10.0.0.1, redis://10.0.0.2 redis://10.0.0.1:6379 # rack 1"),
        (
            "mixed",
            "\u{feff}# ours\nredis://10.0.0.1,\n\tredis://10.0.0.2,\t# rack 2\nredis://10.0.0.2\n",
        ),
        ("fragment", "redis://me:top#secret@10.0.0.1 # rack 1\n"),
        ("comma-in-password", "redis://me:top,secret@10.0.0.1:port, redis://10.0.0.2\n"),
    ] {
        let output = session.run(&["check", "--nodes-file", &files.write(name, text)]).err;
        assert!(!output.contains("secret"), "{output}");
    }
    session.compare_with("nodes-list.txt");
}

/// The lock exists only on the first node, so the exit code of `status` shows which node the command used.
#[test]
fn option_overrides_the_variable_with_nodes() {
    let [first, second] = [Cluster::start(1), Cluster::start(1)];
    for key in ["a", "app:b"] {
        first[0].set(key, "somebody");
    }
    let files = Files::new();
    let list = files.write("list", &format!("\n# first\n  {} \n", first[0].url()));
    let nodes = format!("nodes = [{:?}]\n", first[0].url());
    let table = files.write("nodes.toml", &nodes);
    let marked = files.write("marked", &format!("\u{feff}{}\r\n", first[0].url()));
    let marked_table = files.write("marked.toml", &format!("\u{feff}{nodes}"));
    let commas = files.write("commas", &format!("{},\n", first[0].url()));
    let commented =
        files.write("commented", &format!("{}  # rack 1, redis://b\n# c\n", first[0].url()));
    let prefixed = files.write("prefixed.toml", &format!("{nodes}key_prefix = \"app:\"\n"));
    let url = first[0].url();

    let code = |session: &ShellSession, arguments: &[&str]| {
        session.execute(&[&["status"], arguments].concat()).code
    };
    let other = ShellSession::on(&second);
    assert_eq!(code(&other, &["a"]), 0);
    let files = [&list, &table, &marked, &marked_table, &commas, &commented];
    let files = files.into_iter().map(|file| ["--nodes-file", file]);
    for options in files.chain([["--node", &url]]) {
        assert_eq!(code(&other, &[&options[..], &["a"]].concat()), 1, "{options:?}");
        assert_eq!(code(&other, &[&options[..], &["b"]].concat()), 0, "{options:?}");
    }
    // The environment variable overrides the setting in the file.
    assert_eq!(code(&other, &["--nodes-file", &prefixed, "b"]), 1);
    let other = other.with("QUORLOCK_KEY_PREFIX", "other:");
    assert_eq!(code(&other, &["--nodes-file", &prefixed, "b"]), 0);
    let other = other.with("QUORLOCK_KEY_PREFIX", "app:");
    assert_eq!(code(&other, &["--nodes-file", &list, "b"]), 1);
    assert_eq!(code(&ShellSession::on(&first), &["a"]), 1);
}
