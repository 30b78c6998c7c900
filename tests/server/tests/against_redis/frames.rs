//! Determines the lengths and kinds of RESP2 and RESP3 replies, and compares replies.

pub fn length(bytes: &[u8]) -> usize {
    let line = bytes.windows(2).position(|two| two == b"\r\n").expect("a whole line") + 2;
    let count = || {
        let digits = std::str::from_utf8(&bytes[1..line - 2]).expect("digits");
        digits.parse::<i64>().expect("a number")
    };
    let parts = match bytes[0] {
        b'$' | b'=' => {
            let count = count();
            return usize::try_from(count).map_or(line, |count| line + count + 2);
        }
        b'*' | b'>' => count(),
        b'%' => 2 * count(),
        _ => 0,
    };
    (0..parts).fold(line, |at, _| at + length(&bytes[at..]))
}

/// Returns true for a reply to `INFO`. In such a reply, a real server sends more fields than the model, and most values
/// vary.
fn is_info(frame: &[u8]) -> bool {
    let line = frame.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let text = &frame[line..];
    let text = text.strip_prefix(b"txt:").unwrap_or(text);
    matches!(frame[0], b'$' | b'=') && text.starts_with(b"# ")
}

/// Returns true if two replies are equal. In replies to `INFO` and `HELLO`, only the fields that clients read are
/// compared. If the real server is not the version that is modelled, `is_exact` is false. Then only the first words of
/// errors must be equal, and times may differ by less than 600 µs.
pub fn is_same(expected: &[u8], got: &[u8], is_exact: bool) -> bool {
    const MODULES: &[u8] = b"$7\r\nmodules\r\n";
    let greeting = expected.windows(MODULES.len()).position(|part| part == MODULES);
    if is_info(expected) && !got.is_empty() {
        is_info(got) && facts(expected, is_exact) == facts(got, is_exact)
    } else if let Some(length) = greeting {
        got.get(..length) == expected.get(..length)
    } else if let (Some(one), Some(other)) = (time_us(expected), time_us(got))
        && !is_exact
    {
        one <= other && other < one + 600
    } else if expected[0] == b'-' && !is_exact && got.ends_with(b"\r\n") {
        kind(expected) == kind(got)
    } else {
        expected == got
    }
}

fn facts(frame: &[u8], with_uptime: bool) -> Vec<String> {
    const READ: [&str; 11] = [
        "redis_version",
        "valkey_version",
        "run_id",
        "uptime_in_seconds",
        "role",
        "connected_slaves",
        "maxmemory",
        "maxmemory_policy",
        "evicted_keys",
        "aof_enabled",
        "cluster_enabled",
    ];
    let text = String::from_utf8_lossy(frame);
    let is_read = |line: &&str| {
        // Valkey updates its uptime late.
        let name = line.split_once(':').map(|(name, _)| name);
        name.is_some_and(|name| {
            READ.contains(&name) && (with_uptime || name != "uptime_in_seconds")
        })
    };
    let mut facts: Vec<_> = text.lines().filter(is_read).map(str::to_owned).collect();
    facts.sort();
    facts
}

pub fn shown(bytes: &[u8]) -> String {
    let text = bytes.escape_ascii().to_string();
    if text.len() > 600 { format!("{}… ({} bytes)", &text[..600], bytes.len()) } else { text }
}

/// Returns the kind of a reply: the first word of an error, the whole text of a short reply, or the type byte of any
/// other reply.
pub fn kind(frame: &[u8]) -> String {
    let end = frame.iter().position(|byte| matches!(byte, b' ' | b'\r')).expect("a whole line");
    let first = String::from_utf8_lossy(&frame[..end]).into_owned();
    match frame[0] {
        b'-' if frame.ends_with(b".\r\n") && frame.windows(9).any(|part| part == b" script: ") => {
            format!("{first} in a script")
        }
        b'>' if frame.ends_with(b"_\r\n") => "full invalidation".to_owned(),
        b'>' => "key invalidation".to_owned(),
        b':' if !matches!(&*first, ":0" | ":1" | ":-1" | ":-2") => ":".to_owned(),
        b'$' | b'=' if first != "$-1" => first[..1].to_owned(),
        _ => first,
    }
}

fn time_us(frame: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(frame).ok()?;
    let [head, _, seconds, _, micros, ""] = text.split("\r\n").collect::<Vec<_>>()[..] else {
        return None;
    };
    let second = seconds.parse::<u64>().ok().filter(|_| head == "*2" && seconds.len() == 10)?;
    Some(second * 1_000_000 + micros.parse::<u64>().ok()?)
}
