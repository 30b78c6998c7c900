//! Tests of the Rust code blocks in docs/.

mod pay {
    crate::block!("FENCING.pay");

    #[tokio::test(start_paused = true)]
    async fn payment_has_a_token_and_releases_the_lock() {
        let nodes = quorlock_test::Nodes::start(3);
        let redlock = nodes.client().build().expect("valid settings");
        pay(redlock.clone()).await.expect("the payment succeeds");
        redlock.close().await.expect("all releases are delivered");
        assert_eq!(nodes.count("account/7"), 0);
    }
}

mod metrics {
    use kit::Cluster;
    use metrics_exporter_prometheus::Matcher;
    use quorlock::Redlock;
    use std::error::Error;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    #[allow(unused_variables, reason = "the example continues with the client")]
    fn set_up(nodes: Vec<String>) -> Result<(), Box<dyn Error>> {
        crate::block!("METRICS.1");
        Ok(())
    }

    fn scraped() -> String {
        let mut stream = TcpStream::connect(crate::listener()).expect("the exporter listens");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("a request");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("a page");
        page
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn exporter_shows_nodes_with_histogram_buckets() {
        let nodes = Cluster::start(3);
        set_up(nodes.urls()).expect("a recorder, then a client");
        let page = scraped();
        for node in &nodes {
            let line = format!(
                "quorlock_round_trip_seconds_bucket{{node=\"{}\",le=\"0.0005\"}}",
                node.addr()
            );
            assert!(page.contains(&line), "no {line} in {page}");
        }

        let builder = Redlock::builder().nodes(nodes.urls()).node_timeout(crate::PATIENCE);
        let redlock = builder.build().expect("valid settings");
        redlock.acquire("a").class("counted").await.expect("the lock is free").release().await.ok();
        let page = scraped();
        let node = (&nodes).into_iter().next().expect("three nodes").addr().to_string();
        let guide = include_str!("../../../../docs/METRICS.md").replace('\n', " ");
        for counts in [
            format!("class has {}", series(&page, "class=\"counted\"")),
            format!("node has {}", series(&page, &format!("node=\"{node}\""))),
        ] {
            assert!(guide.contains(&counts), "METRICS.md does not say: {counts}");
        }
    }

    /// Counts the counters, gauges and histograms on `page` that have the label `label`. Returns the counts in the
    /// guide's wording, for example `6 counters, two gauges and a histogram`.
    fn series(page: &str, label: &str) -> String {
        let lines = page.lines().filter(|line| !line.starts_with('#') && line.contains(label));
        let names: Vec<_> = lines.filter_map(|line| line.split('{').next()).collect();
        let count = |kind: &str, suffix: &str| {
            let of_kind = |name: &&&str| {
                let name = name.strip_suffix(suffix);
                name.is_some_and(|name| page.contains(&format!("# TYPE {name} {kind}\n")))
            };
            names.iter().filter(of_kind).count()
        };
        let few = ["no", "one", "two", "three", "four", "five"];
        let (gauges, histograms) = (few[count("gauge", "")], count("histogram", "_count"));
        let histograms = match histograms {
            1 => "a histogram".to_owned(),
            more => format!("{} histograms", few[more]),
        };
        format!("{} counters, {gauges} gauges and {histograms}", count("counter", ""))
    }
}

mod start {
    crate::block!("CONFIGURATION.start");

    use std::env;
    use std::process::Command;

    /// Checks that a client takes its settings from the environment. The client runs in a separate process, whose
    /// environment contains only quorlock's settings.
    #[tokio::test]
    #[ignore = "run by settings_come_from_the_environment"]
    async fn client_from_environment_acquires_a_lock() {
        let redlock = start().expect("settings from the environment");
        assert_eq!(redlock.nodes().len(), 3);
        let lease = redlock.acquire("r").await.expect("the lock is free");
        assert!(lease.validity() <= std::time::Duration::from_secs(5));
        redlock.close().await.expect("the client closes");
    }

    #[test]
    fn settings_come_from_the_environment() {
        let nodes = kit::Cluster::start(3);
        let args =
            ["--ignored", "--exact", "guides::start::client_from_environment_acquires_a_lock"];
        let mut process = Command::new(env::current_exe().expect("this program"));
        process.args(args).env_clear();
        process.env("QUORLOCK_NODES", nodes.urls().join(" ")).env("QUORLOCK_TTL", "5s");
        let output = process.output().expect("the test program runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
}
