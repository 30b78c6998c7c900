//! Tests of the Rust code blocks in README.md.

mod first {
    use kit::Cluster;

    crate::block!("README.1");

    #[test]
    fn first_program_leaves_no_key() {
        let nodes = Cluster::start(3);
        crate::URLS.set(nodes.urls());
        main().expect("the lock is free");
        assert!(nodes.is_empty());
    }
}

mod update_stock {
    crate::block!("README.update_stock");

    #[tokio::test(start_paused = true)]
    async fn acquire_waits_at_most_five_seconds() {
        let nodes = quorlock_test::Nodes::start(3);
        let redlock = nodes.client().build().expect("valid settings");
        nodes.hold("stock/7", Duration::from_secs(60));
        let start = tokio::time::Instant::now();
        update_stock(&redlock).await.expect("the refusal is printed");
        assert_eq!(start.elapsed().as_secs(), 5);
        tokio::time::sleep(Duration::from_secs(60)).await;
        update_stock(&redlock).await.expect("the lock is free");
        redlock.close().await.expect("all releases are delivered");
        assert_eq!(nodes.count("stock/7"), 0);
    }
}

mod import {
    crate::block!("README.import");

    #[tokio::test(start_paused = true)]
    async fn renewed_lease_is_released_after_the_work() {
        let nodes = quorlock_test::Nodes::start(3);
        let redlock = nodes.client().build().expect("valid settings");
        import(&redlock).await.expect("the lock is free");
        redlock.close().await.expect("all releases are delivered");
        assert_eq!(nodes.count("import"), 0);
    }
}

mod campaign {
    crate::block!("README.scheduler");
    use quorlock::AcquireError;

    #[tokio::test(start_paused = true)]
    async fn leader_keeps_the_lock_until_its_client_is_closed() {
        let nodes = quorlock_test::Nodes::start(3);
        let [first, second] = [(); 2].map(|()| nodes.client().build().expect("valid settings"));
        let election = scheduler(&first).expect("valid settings");
        let leading = tokio::spawn(async move { campaign(&election).await });
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        let refused = second.try_acquire("scheduler").await.expect_err("the leader has the lock");
        assert!(refused.is_contended(), "{refused}");
        first.close().await.expect("all releases are delivered");
        let ended = leading.await.expect("no panic");
        assert!(matches!(ended, Err(UsingError::NotAcquired(AcquireError::Closed))), "{ended:?}");
        assert_eq!(nodes.count("scheduler"), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn leader_that_lost_its_lease_campaigns_again() {
        let nodes = quorlock_test::Nodes::start(3);
        let redlock = nodes.client().build().expect("valid settings");
        let election = scheduler(&redlock).expect("valid settings");
        let leading = tokio::spawn(async move { campaign(&election).await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        nodes.hang();
        tokio::time::sleep(Duration::from_secs(60)).await;
        nodes.resume();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(redlock.status("scheduler").await.expect("the nodes reply").holder().is_some());
        redlock.close().await.expect("all releases are delivered");
        let ended = leading.await.expect("no panic");
        assert!(matches!(ended, Err(UsingError::NotAcquired(AcquireError::Closed))), "{ended:?}");
    }
}

mod pay {
    use std::time::Duration;

    crate::block!("README.pay");

    #[tokio::test(start_paused = true)]
    async fn response_depends_on_the_refusal() {
        let nodes = quorlock_test::Nodes::start(3);
        let redlock = nodes.client().build().expect("valid settings");
        assert_eq!(pay(&redlock, 42).await, (200, None));
        nodes.hold("orders/42", Duration::from_secs(5));
        let (status, seconds) = pay(&redlock, 42).await;
        assert_eq!(status, 409);
        assert!(matches!(seconds, Some(5 | 6)), "{seconds:?}");
        nodes.hang();
        assert_eq!(pay(&redlock, 42).await, (503, Some(1)));
    }
}
