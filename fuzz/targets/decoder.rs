//! Parses arbitrary server output, and compares the first reply with the result of the redis crate. The first input
//! byte is the chunk size minus one; the other bytes are the output.
#![no_main]

#[path = "../../src/wire/buffer.rs"]
mod buffer;
#[allow(dead_code)]
#[path = "../../src/wire/decoder.rs"]
mod decoder;

use decoder::Decoder;
use libfuzzer_sys::fuzz_target;

/// Decodes `bytes` in chunks of `size` bytes. Returns the `Debug` text of each reply, because NaN is not equal to
/// itself, and whether decoding failed.
fn decoded(bytes: &[u8], size: usize) -> (Vec<String>, bool) {
    let (mut decoder, mut replies) = (Decoder::default(), Vec::new());
    for piece in bytes.chunks(size) {
        decoder.add(piece);
        loop {
            match decoder.next(1 << 30) {
                Ok(Some(reply)) => replies.push(format!("{reply:?}")),
                Ok(None) => break,
                Err(_) => return (replies, true),
            }
        }
    }
    (replies, false)
}

fuzz_target!(|data: &[u8]| {
    let Some((size, bytes)) = data.split_first() else { return };
    let whole = decoded(bytes, bytes.len().max(1));
    assert_eq!(
        decoded(bytes, 1 + usize::from(*size)),
        whole,
        "the replies depend on the chunk size"
    );
    // The redis crate must return the same first reply. If only the crate accepts the input, this decoder must have
    // rejected the input for exceeding a limit.
    let (replies, is_refused) = whole;
    // The decoder accepts errors that are not UTF-8; the crate does not.
    let text = String::from_utf8_lossy(bytes);
    let bytes = if bytes.starts_with(b"-") { text.as_bytes() } else { bytes };
    let crates = redis::parse_redis_value(bytes).ok().map(|value| format!("{value:?}"));
    if !replies.is_empty() || !is_refused {
        assert_eq!(replies.into_iter().next(), crates);
    }
});
