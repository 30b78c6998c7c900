//! The blocks of docs/.

mod pay {
    crate::block!("FENCING.pay");

    #[tokio::test(start_paused = true)]
    async fn what_is_paid_has_a_token_and_leaves_no_lock() {
        let nodes = quorlock::test_util::Nodes::start(3);
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
    }
}
