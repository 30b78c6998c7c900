use super::*;

#[tokio::test]
async fn a_panic_is_a_failure_with_its_message() {
    let failure = |why: String| NodeFailure::Unreachable(why.into());
    let done = shield(async { Ok(7) }, failure).await;
    assert_eq!(done, Ok(7));
    let broken = shield::<()>(async { panic!("\n no provider\nsecond line") }, failure).await;
    assert_eq!(broken, Err(failure("panicked: no provider".into())));
    assert!(crate::sync::contain(|| panic!("{}", 7)).is_none());
}

/// Panic payload whose destructor panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("not yet");
    }
}

#[tokio::test]
async fn what_is_thrown_may_panic_too() {
    let failure = |why: String| NodeFailure::Unreachable(why.into());
    let broken = shield::<()>(async { std::panic::panic_any(Bomb) }, failure).await;
    assert_eq!(broken, Err(failure("panicked: no message".into())));
}
