//! What a server may send, beside the redis crate's parser. The first byte says in what pieces the others come.
#![no_main]

#[allow(dead_code)]
#[path = "../../src/wire/decoder.rs"]
mod decoder;

use decoder::Decoder;
use libfuzzer_sys::fuzz_target;

/// All replies in the bytes, which come in pieces of that size; and whether they ended in an error. As text: a
/// number that is none does not equal itself.
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
    assert_eq!(decoded(bytes, 1 + usize::from(*size)), whole, "it hangs on how the bytes come");
    // The first reply is what the crate reads; and what it reads is one here, or is refused for its bounds.
    let (replies, is_refused) = whole;
    // An error need not be text here.
    let text = String::from_utf8_lossy(bytes);
    let bytes = if bytes.starts_with(b"-") { text.as_bytes() } else { bytes };
    let crates = redis::parse_redis_value(bytes).ok().map(|value| format!("{value:?}"));
    if !replies.is_empty() || !is_refused {
        assert_eq!(replies.into_iter().next(), crates);
    }
});
