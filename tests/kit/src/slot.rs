//! Which slot of a cluster a key is in.

/// The hash slot of `key`, as a server in cluster mode computes it (`CLUSTER KEYSLOT`): CRC16
/// (XMODEM), modulo 16384, of the key's hash tag, or else of all of it. See the Redis Cluster
/// Specification.
#[must_use]
pub fn hash_slot(key: &[u8]) -> u16 {
    crc16(tag(key).unwrap_or(key)) % 16_384
}

/// What stands between the first `{` and the first `}` after it, if that is anything.
fn tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let rest = &key[open + 1..];
    let close = rest.iter().position(|byte| *byte == b'}')?;
    Some(&rest[..close]).filter(|tag| !tag.is_empty())
}

/// Polynomial 0x1021, from 0, no reflection.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc_is_that_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(hash_slot(b"{user1000}.following"), hash_slot(b"{user1000}.followers"));
        assert_eq!(hash_slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % 16_384);
    }
}
