//! The blocks of docs/.

mod pay {
    crate::block!("FENCING.pay");

    #[tokio::test(start_paused = true)]
    async fn what_is_paid_has_a_token_and_leaves_no_lock() {
        let nodes = quorlock_test::Nodes::start(3);
        let redlock = nodes.client().build().expect("good settings");
        pay(redlock.clone()).await.expect("a token");
        redlock.close().await.expect("all is released");
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

    #[allow(unused_variables, reason = "the client that readers go on with")]
    fn set_up(nodes: Vec<String>) -> Result<(), Box<dyn Error>> {
        crate::block!("METRICS.1");
        Ok(())
    }

    /// What a scraper reads.
    fn scraped() -> String {
        let mut stream = TcpStream::connect(crate::listener()).expect("it listens");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("a request");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("a page");
        page
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_exporter_shows_the_nodes_with_buckets() {
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
        redlock.acquire("a").class("counted").await.expect("a free lock").release().await.ok();
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

    /// The number of series with `label`, by type.
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

    /// Runs in a process without other environment variables.
    #[tokio::test]
    #[ignore = "settings_come_from_the_environment runs it"]
    async fn with_the_environment() {
        let redlock = start().expect("settings from the environment");
        assert_eq!(redlock.nodes().len(), 3);
        let lease = redlock.acquire("r").await.expect("a free lock");
        assert!(lease.validity() <= std::time::Duration::from_secs(5));
        redlock.close().await.expect("all is delivered");
    }

    #[test]
    fn settings_come_from_the_environment() {
        let nodes = kit::Cluster::start(3);
        let args = ["--ignored", "--exact", "guides::start::with_the_environment"];
        let mut process = Command::new(env::current_exe().expect("this program"));
        process.args(args).env_clear();
        process.env("QUORLOCK_NODES", nodes.urls().join(" ")).env("QUORLOCK_TTL", "5s");
        let output = process.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
}
