//! Tests that compare the decoder with the redis crate's parser, and tests of the decoder's limits.

use super::*;
use proptest::prelude::*;

fn decoded<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Value>, Malformed> {
    let mut decoder = Decoder::default();
    let mut replies = Vec::new();
    for piece in pieces {
        decoder.add(piece);
        while let Some(reply) = decoder.next(MAX_BYTES)? {
            replies.push(reply);
        }
    }
    Ok(replies)
}

fn refused(bytes: &[u8]) -> &'static str {
    match decoded([bytes]) {
        Err(Malformed(why)) => why,
        Ok(replies) => panic!("{replies:?}"),
    }
}

fn text() -> impl Strategy<Value = String> {
    "[ -~]{0,30}"
}

fn line_reply() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![any::<i64>(), -3..100_i64].prop_map(|number| format!(":{number}\r\n"));
    let others = prop_oneof![
        Just("+OK"),
        Just("_"),
        Just("$-1"),
        Just("*-1"),
        Just("#t"),
        Just("#f"),
        Just(",1.5"),
        Just(",inf"),
        Just("(3492890328409238509324850943850943825024385"),
    ];
    prop_oneof![
        3 => number,
        3 => others.prop_map(|other| format!("{other}\r\n")),
        1 => text().prop_map(|status| format!("+{status}\r\n")),
        1 => text().prop_map(|error| format!("-ERR {error}\r\n")),
    ]
    .prop_map(String::into_bytes)
}

fn string_reply() -> impl Strategy<Value = Vec<u8>> {
    let framed = |mark: &str, text: &[u8]| {
        let head = format!("{mark}{}\r\n", text.len());
        [head.as_bytes(), text, b"\r\n"].concat()
    };
    prop_oneof![
        6 => proptest::collection::vec(any::<u8>(), 0..300).prop_map(move |it| framed("$", &it)),
        1 => text().prop_map(move |it| framed("=", format!("txt:{it}").as_bytes())),
        1 => text().prop_map(move |it| framed("!", format!("ERR {it}").as_bytes())),
    ]
}

fn reply() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![line_reply(), string_reply()];
    leaf.prop_recursive(3, 24, 6, |inner| {
        let many = proptest::collection::vec(inner.clone(), 0..6);
        let pairs = proptest::collection::vec((inner.clone(), inner.clone()), 0..4);
        let framed = |mark: &str, count: usize, elements: &[Vec<u8>]| {
            [format!("{mark}{count}\r\n").into_bytes(), elements.concat()].concat()
        };
        prop_oneof![
            4 => many.clone().prop_map(move |it| framed("*", it.len(), &it)),
            1 => many.prop_map(move |it| framed("~", it.len(), &it)),
            1 => pairs.clone().prop_map(move |it| {
                let count = it.len();
                framed("%", count, &it.into_iter().flat_map(|(k, v)| [k, v]).collect::<Vec<_>>())
            }),
            1 => (pairs, inner).prop_map(move |(it, of)| {
                let count = it.len();
                let attributes: Vec<_> = it.into_iter().flat_map(|(k, v)| [k, v]).collect();
                [framed("|", count, &attributes), of].concat()
            }),
        ]
    })
}

fn push() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(string_reply(), 0..4).prop_map(|keys| {
        let head = format!(">2\r\n$10\r\ninvalidate\r\n*{}\r\n", keys.len());
        [head.into_bytes(), keys.concat()].concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn chunked_replies_match_the_redis_crate(
        wires in proptest::collection::vec(prop_oneof![5 => reply(), 1 => push()], 1..5),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let theirs: Vec<_> = wires.iter().map(|wire| redis::parse_redis_value(wire)).collect();
        let bytes = wires.concat();
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.sort_unstable();
        let ends = cuts.iter().copied().chain([bytes.len()]);
        let mut pieces = Vec::new();
        let mut from = 0;
        for end in ends {
            pieces.push(&bytes[from..end]);
            from = end;
        }
        let ours = decoded(pieces);
        match theirs.into_iter().collect::<Result<Vec<_>, _>>() {
            Ok(theirs) => prop_assert_eq!(ours, Ok(theirs)),
            Err(error) => prop_assert!(ours.is_err(), "{error} is {ours:?}"),
        }
    }

    #[test]
    fn single_byte_chunks_decode_the_same_reply(wire in reply()) {
        let bytes = decoded(wire.chunks(1));
        prop_assert_eq!(bytes, decoded([wire.as_slice()]));
    }

    /// Checks that the decoder rejects every reply that the redis crate rejects, except an error that is not valid
    /// UTF-8.
    #[test]
    fn corrupted_replies_fail_or_match_the_redis_crate(
        wire in reply(), at in any::<prop::sample::Index>(), by in any::<u8>(),
    ) {
        let mut wire = wire;
        let at = at.index(wire.len());
        wire[at] = by;
        let mut decoder = Decoder::default();
        decoder.add(&wire);
        if let Ok(Some(ours)) = decoder.next(MAX_BYTES) {
            prop_assert_eq!(Some(ours), redis::parse_redis_value(&to_utf8(&wire)).ok());
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decoded([bytes.as_slice()]);
    }
}

#[test]
fn invalid_bytes_report_the_reason() {
    for (bytes, why) in [
        (&b"HTTP/1.1 400 Bad Request\r\n"[..], "unknown type byte"),
        (b"$x\r\n", "invalid length"),
        (b"$-2\r\n", "invalid length"),
        (b"*99999999999999999999\r\n", "invalid length"),
        (b"*9223372036854775807\r\n", "invalid length"),
        (b"$2\r\nabc\r\n", "string without line end"),
        (b":x\r\n", "malformed value"),
    ] {
        assert_eq!(refused(bytes), why, "{}", bytes.escape_ascii());
    }
}

/// Checks that an error may repeat binary arguments. The error for an unknown command repeats the command's arguments,
/// cut off at any byte. Resource names and values can be binary.
#[test]
fn error_reply_may_contain_invalid_utf8() {
    let wire = b"-ERR unknown command 'DELIFEQ', with args beginning with: '\xff\xc3' \r\n+OK\r\n";
    let replies = decoded(wire.chunks(1)).expect("replies");
    let [Value::ServerError(error), Value::Okay] = &replies[..] else { panic!("{replies:?}") };
    assert_eq!(error.code(), "ERR");
    assert_eq!(refused(b"+\xff\r\n"), "malformed value");
}

#[test]
fn nesting_length_and_line_limits() {
    let deep = |levels: usize| [b"*1\r\n".repeat(levels), b":7\r\n".to_vec()].concat();
    assert_eq!(decoded([&*deep(MAX_DEPTH)]).expect("the maximum depth").len(), 1);
    assert_eq!(refused(&deep(MAX_DEPTH + 1)), "nested too deeply");
    // The decoder must not reserve memory for the announced length.
    let mut decoder = Decoder::default();
    decoder.add(b"$536870912\r\nand no more");
    assert_eq!(decoder.next(MAX_BYTES), Ok(None));
    assert!(decoder.bytes.capacity() < 1_000);
    assert_eq!(refused(b"$536936449\r\n"), "invalid length");
    assert_eq!(refused(b"$536936440\r\n"), "reply longer than its command allows");
    assert_eq!(refused(&[b'+'].repeat(MAX_LINE + 2)), "line longer than 65,536 bytes");
}

#[test]
fn element_count_limit() {
    let flat =
        |count: usize| [format!("*{count}\r\n").as_bytes(), &b"_\r\n".repeat(count)].concat();
    let replies = decoded([&*flat(MAX_ELEMENTS)]).expect("the maximum number of elements");
    assert!(matches!(&replies[..], [Value::Array(nils)] if nils.len() == MAX_ELEMENTS));
    let why = "reply with more than 65,536 elements";
    // The decoder rejects the announced count before the elements arrive.
    for announced in ["*65537\r\n", "~65537\r\n", ">65537\r\n", "%32769\r\n", "|32768\r\n"] {
        assert_eq!(refused(announced.as_bytes()), why, "{announced}");
    }
    // The limit covers all levels: 256 × 256 elements and the 256 arrays that contain them.
    let nested = [&b"*256\r\n"[..], &flat(256).repeat(256)].concat();
    assert_eq!(refused(&nested), why);
    let nested = [&b"*255\r\n"[..], &flat(256).repeat(255)].concat();
    assert_eq!(decoded([&*nested]).map(|replies| replies.len()), Ok(1));
    // The limit applies to each reply separately.
    let two = [flat(MAX_ELEMENTS), flat(MAX_ELEMENTS)].concat();
    assert_eq!(decoded([&*two]).map(|replies| replies.len()), Ok(2));
}

#[test]
fn length_limit_covers_all_lines_of_a_reply() {
    let lines = b"*3\r\n+1234567\r\n+1234567\r\n+1234567\r\n";
    for (max_bytes, scanned) in [(34, Ok(Some(34))), (33, Err(TOO_LONG)), (24, Err(TOO_LONG))] {
        assert_eq!(Scanner::default().scan(lines, max_bytes), scanned);
    }
}

#[test]
fn buffer_shrinks_after_a_large_reply() {
    let mut decoder = Decoder::default();
    let large = [&b"$1000000\r\n"[..], &vec![7; 1_000_000], b"\r\n"].concat();
    large.chunks(5_000).for_each(|piece| decoder.add(piece));
    assert!(
        matches!(decoder.next(MAX_BYTES), Ok(Some(Value::BulkString(text))) if text.len() == 1_000_000)
    );
    assert!(decoder.bytes.capacity() <= MAX_IDLE_CAPACITY);
    decoder.add(b":7\r\n");
    assert_eq!(
        (decoder.next(MAX_BYTES), decoder.next(MAX_BYTES)),
        (Ok(Some(Value::Int(7))), Ok(None))
    );
}
