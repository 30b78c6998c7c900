//! Buffers that keep little memory while a connection is idle.

/// If a buffer is more than this many times larger than needed, its memory is freed. A heartbeat of 14 bytes frees the
/// memory of earlier pipelines, but a short pipeline between long ones does not.
const FACTOR: usize = 64;

/// The smallest need that is considered.
const MIN_NEED: usize = 16;

/// Clears `buffer`, whose present content shows how much is needed. Keeps at most `most` bytes of capacity, and less if
/// the content was much shorter than the capacity.
pub(crate) fn clear_buffer(buffer: &mut Vec<u8>, most: usize) {
    let needed = buffer.len();
    buffer.clear();
    let is_oversized = buffer.capacity() > FACTOR * needed.max(MIN_NEED);
    buffer.shrink_to(if is_oversized { most.min(2 * needed) } else { most });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_keeps_what_it_needs_often() {
        let mut buffer = Vec::with_capacity(1 << 20);
        for (needed, least, most) in [
            (1 << 20, 1 << 16, 1 << 16),
            (2_000, 1 << 16, 1 << 16),
            (1_024, 1 << 16, 1 << 16),
            (1_000, 2_000, 2_100),
            (14, 28, 40),
            (1, 2, 100),
        ] {
            buffer.resize(needed, 0);
            clear_buffer(&mut buffer, 1 << 16);
            let kept = buffer.capacity();
            assert!(buffer.is_empty() && (least..=most).contains(&kept), "{needed}: {kept}");
        }
    }
}
