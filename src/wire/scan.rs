//! Locks on a server, found by one call of `SCAN`.

use super::requests::{INFO_REPLY, Requests};
use super::value::{MAX_VALUE, Value};
use redis::Value as Reply;
use std::time::Duration;

/// `COUNT` of the `SCAN`. Servers used for locks only rarely have more keys.
const SCAN_COUNT: u64 = 1_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundLock {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Value,
    pub(crate) ttl: Duration,
}

/// Appends a `SCAN` for keys that start with `prefix`.
pub(crate) fn ask_keys(prefix: &[u8], requests: &mut Requests) {
    let mut pattern = Vec::with_capacity(prefix.len() + 1);
    for byte in prefix {
        if b"\\*?[]".contains(byte) {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    pattern.push(b'*');
    requests.allow_reply(INFO_REPLY);
    let scan = requests.command("SCAN", 5).arg("0").arg("MATCH").arg(pattern);
    scan.arg("COUNT").number(SCAN_COUNT).end();
}

/// Keys in the reply to [`ask_keys`]; `None` for an error reply.
pub(crate) fn scanned_keys(reply: &Reply) -> Option<Vec<Vec<u8>>> {
    let Reply::Array(parts) = reply else { return None };
    let [_, Reply::Array(keys)] = &parts[..] else { return None };
    let bytes = |key: &Reply| match key {
        Reply::BulkString(bytes) => Some(bytes.clone()),
        _ => None,
    };
    Some(keys.iter().filter_map(bytes).collect())
}

/// Requests TTL and value of each key.
pub(crate) fn ask_locks(keys: &[Vec<u8>], requests: &mut Requests) {
    for key in keys {
        requests.command("PTTL", 1).arg(key).end();
        requests.command("GETRANGE", 3).arg(key).arg("0").number(MAX_VALUE as u64).end();
    }
}

/// The locks among `keys`. Keys with another value format are skipped.
pub(crate) fn found_locks(keys: Vec<Vec<u8>>, replies: &[Reply]) -> Vec<FoundLock> {
    let lock = |(key, replies): (Vec<u8>, &[Reply])| match replies {
        [Reply::Int(ttl), Reply::BulkString(value)] => {
            let (value, ttl) = (Value::of(value), Duration::from_millis(u64::try_from(*ttl).ok()?));
            value.secret()?;
            Some(FoundLock { key, value, ttl })
        }
        _ => None,
    };
    keys.into_iter().zip(replies.chunks(2)).filter_map(lock).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scan_pattern_escapes_the_prefix() {
        let mut requests = Requests::default();
        ask_keys(br"a*[b]?\:", &mut requests);
        let text = String::from_utf8_lossy(requests.bytes()).into_owned();
        assert!(text.contains("\r\na\\*\\[b\\]\\?\\\\:*\r\n"), "{text}");
    }

    #[test]
    fn only_lock_values_with_a_ttl_are_found() {
        let value = "0123456789abcdef0123456789abcdef:web-1";
        let text = |text: &str| Reply::BulkString(text.into());
        let wrong_type = redis::parse_redis_value(b"-WRONGTYPE no\r\n").expect("an error reply");
        let keys: Vec<Vec<u8>> = ["a", "b", "c", "d", "e"].map(Into::into).into();
        let replies = [
            [Reply::Int(1_500), text(value)],
            [Reply::Int(-1), text(value)],
            [Reply::Int(-2), text("")],
            [Reply::Int(1_500), text("web-1")],
            [Reply::Int(1_500), wrong_type],
        ];
        let found = found_locks(keys, &replies.concat());
        let ttl = Duration::from_millis(1_500);
        assert_eq!(
            found,
            [FoundLock { key: b"a".into(), value: Value::of(value.as_bytes()), ttl }]
        );
    }

    #[test]
    fn scanned_keys_of_reply_and_error() {
        let reply = redis::parse_redis_value(b"*2\r\n$1\r\n7\r\n*2\r\n$1\r\na\r\n$2\r\nbc\r\n");
        let keys = scanned_keys(&reply.expect("a reply"));
        assert_eq!(keys, Some(vec![b"a".to_vec(), b"bc".to_vec()]));
        let refused = redis::parse_redis_value(b"-NOPERM no\r\n").expect("an error reply");
        assert_eq!(scanned_keys(&refused), None);
    }
}
