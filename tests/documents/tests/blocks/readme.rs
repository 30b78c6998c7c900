//! The blocks of README.md.

use kit::Cluster;

/// Plays a whole program on servers.
fn play(main: fn() -> Result<(), Box<dyn std::error::Error>>) -> Cluster {
    let nodes = Cluster::start(3);
    crate::URLS.set(nodes.urls());
    main().expect("it ends well");
    nodes
}

mod first {
    crate::block!("README.1");

    #[test]
    fn the_first_program_leaves_a_free_lock() {
        let nodes = super::play(main);
        // A quorum has released it; the program has not waited for the third.
        let held = nodes.keys_per_node().iter().filter(|keys| !keys.is_empty()).count();
        assert!(held <= 1, "on {held} nodes");
    }
}

mod usage {
    crate::block!("README.2");

    #[test]
    fn the_longer_program_leaves_nothing() {
        assert!(super::play(main).is_empty());
    }
}

mod nightly {
    crate::block!("README.nightly");

    #[tokio::test(start_paused = true)]
    async fn renewed_work_is_done() {
        let nodes = quorlock::test_util::Nodes::start(3);
        let redlock = nodes.client().build().expect("good settings");
        nightly(redlock.clone()).await.expect("done twice");
        redlock.close().await.expect("all is released");
        assert_eq!(nodes.count("orders/42"), 0);
    }
}

mod daily {
    crate::block!("README.daily");

    #[tokio::test(start_paused = true)]
    async fn the_job_is_done_and_nobody_else_does_it_for_so_long() {
        let nodes = quorlock::test_util::Nodes::start(3);
        let [one, other] = [(); 2].map(|()| nodes.client().build().expect("good settings"));
        daily(one).await.expect("done");
        tokio::time::sleep(Duration::from_secs(29)).await;
        let again = other.try_acquire("daily").await.expect_err("it was done");
        assert!(again.is_contended(), "{again}");
        tokio::time::sleep(Duration::from_secs(2)).await;
        drop(other.try_acquire("daily").await.expect("the next day"));
    }
}

mod more {
    crate::block!("README.more");

    #[tokio::test(start_paused = true)]
    async fn more_of_a_lease_works_and_leaves_no_lock() {
        let nodes = quorlock::test_util::Nodes::start(3);
        let redlock = nodes.client().build().expect("good settings");
        more(redlock.clone()).await.expect("all of it");
        redlock.close().await.expect("all is released");
        for resource in ["account/7", "account/9", "report"] {
            assert_eq!(nodes.count(resource), 0, "{resource}");
        }
    }
}

mod blocking {
    use quorlock::Redlock;
    use std::error::Error;
    use std::time::Duration;

    fn locked(nodes: Vec<String>) -> Result<(), Box<dyn Error>> {
        crate::block!("README.6");
        Ok(())
    }

    #[test]
    fn the_verbs_without_async_leave_nothing() {
        let nodes = kit::Cluster::start(3);
        locked(nodes.urls()).expect("locked and released");
        assert!(nodes.is_empty());
    }
}

mod start {
    crate::block!("README.start");

    use std::env;
    use std::process::Command;

    /// Played in a process whose environment has nothing else.
    #[tokio::test]
    #[ignore = "run by the test below"]
    async fn with_the_environment() {
        let [quick, leader] = start().expect("settings from the environment");
        assert_eq!(quick.nodes().len(), 3);
        let lease = quick.acquire("r").await.expect("a free lock");
        assert!(lease.validity() <= std::time::Duration::from_secs(2));
        let lease = leader.acquire("leader").await.expect("a free lock");
        assert!(lease.token().is_some());
        assert!(lease.validity() <= std::time::Duration::from_secs(5));
        quick.close().await.expect("one for both");
    }

    #[test]
    fn settings_come_from_the_environment() {
        let nodes = kit::Cluster::start(3);
        let args = ["--ignored", "--exact", "readme::start::with_the_environment"];
        let mut process = Command::new(env::current_exe().expect("this program"));
        process.args(args).env_clear();
        process.env("QUORLOCK_NODES", nodes.urls().join(" ")).env("QUORLOCK_TTL", "5s");
        let output = process.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
}

mod observed {
    crate::block!("README.observed");

    #[tokio::test(flavor = "multi_thread")]
    async fn an_observed_lock_is_released() {
        let nodes = kit::Cluster::start(1);
        crate::URLS.set(nodes.urls());
        observed().await.expect("a free lock");
        // Less than the ttl.
        let soon = std::time::Duration::from_secs(5);
        kit::eventually(soon, "it is released", || nodes.is_empty());
    }
}

mod test_nodes {
    use std::error::Error;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_held_lock_is_refused() -> Result<(), Box<dyn Error>> {
        crate::block!("README.9");
        Ok(())
    }
}

mod look {
    crate::block!("README.look");

    #[tokio::test(start_paused = true)]
    async fn nodes_are_looked_at_until_the_client_is_closed() {
        let nodes = quorlock::test_util::Nodes::start(3);
        let redlock = nodes.client().build().expect("good settings");
        look(redlock.clone()).await.expect("it can be asked");
        redlock.close().await.expect("nothing is owed");
        look(redlock).await.expect_err("it is closed");
    }
}
