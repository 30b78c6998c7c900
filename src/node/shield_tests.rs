use super::*;

#[tokio::test]
async fn panic_becomes_an_error_with_its_message() {
    let failure = |why: String| NodeFailure::Unreachable(why.into());
    let done = shield(async { Ok(7) }, failure).await;
    assert_eq!(done, Ok(7));
    let broken = shield::<()>(async { panic!("\n no provider\nsecond line") }, failure).await;
    assert_eq!(broken, Err(failure("panicked: no provider".into())));
    assert!(crate::sync::catch_panic(|| panic!("{}", 7)).is_none());
}

/// A panic payload whose destructor panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("not yet");
    }
}

#[tokio::test]
async fn panic_without_a_message_becomes_an_error() {
    let failure = |why: String| NodeFailure::Unreachable(why.into());
    let broken = shield::<()>(async { std::panic::panic_any(Bomb) }, failure).await;
    assert_eq!(broken, Err(failure("panicked: no message".into())));
}
