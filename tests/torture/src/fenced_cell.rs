//! The cells that are written to with fencing tokens, on the same server as the counters.
//!
//! A cell takes a write whose token is not lower than the highest that it has taken, and refuses any
//! other. Nothing else keeps a holder from writing after its lease has ended. Each cell keeps a list
//! of who wrote, in the order in which the writes landed: from it the check is made.

use crate::cell::Cells;
use kit::Server;
use redis::{FromRedisValue, RedisResult};

/// KEYS: the highest token, the list of writes. ARGV: the token, who writes, the end of the validity
/// by the wall clock in microseconds.
const WRITE: &str = r"
local now = redis.call('TIME')
local validity = now[1] * 1000000 + now[2] < tonumber(ARGV[3]) and 'valid' or 'late'
local fate = 'refused'
if tonumber(ARGV[1]) >= tonumber(redis.call('GET', KEYS[1]) or '0') then
  fate = 'accepted'
  redis.call('SET', KEYS[1], ARGV[1])
end
redis.call('RPUSH', KEYS[2], ARGV[2] .. ' ' .. fate .. ' ' .. validity)
return 0";

/// The cells, as a client sees them.
#[derive(Clone)]
pub(crate) struct FencedCells {
    cells: Cells,
}

/// Who writes: one tenure of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Writer {
    pub(crate) client: u16,
    /// Which of its tenures it is.
    pub(crate) id: u64,
}

/// A write, as its cell noted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) writer: Writer,
    pub(crate) is_accepted: bool,
    /// It landed within the validity of its lease.
    pub(crate) is_valid: bool,
}

impl FencedCells {
    /// Those beside the counters.
    pub(crate) fn beside(cells: &Cells) -> Self {
        Self { cells: cells.clone() }
    }

    /// Writes with a token; the cell notes whether it took that. The validity ends at `until`, by the
    /// wall clock in microseconds; 0 if it has ended.
    pub(crate) async fn write(
        &self,
        resource: u16,
        writer: Writer,
        token: u64,
        until: u64,
    ) -> RedisResult<()> {
        let mut write = redis::cmd("EVAL");
        write.arg(WRITE).arg(2).arg(highest(resource)).arg(writes(resource));
        let Writer { client, id } = writer;
        write.arg(token).arg(format!("{client} {id}")).arg(until);
        self.cells.query(&write).await
    }

    /// The highest token that was taken; 0 before the first one.
    pub(crate) async fn highest(&self, resource: u16) -> RedisResult<u64> {
        let token: Option<u64> = self.cells.query(redis::cmd("GET").arg(highest(resource))).await?;
        Ok(token.unwrap_or(0))
    }
}

/// All writes to a resource's cell, as they landed; and what is there that is none.
pub(crate) fn audit(server: &Server, resource: u16) -> (Vec<Write>, Vec<String>) {
    let list = server.cmd(&["LRANGE", &writes(resource), "0", "-1"]);
    let lines = Vec::<String>::from_redis_value(list).unwrap_or_default();
    let (mut all, mut others) = (Vec::with_capacity(lines.len()), Vec::new());
    for line in lines {
        match read(&line) {
            Some(write) => all.push(write),
            None => others.push(format!("the cell of resource {resource} noted {line:?}")),
        }
    }
    (all, others)
}

/// A write, as it is noted: `CLIENT ID FATE VALIDITY`.
fn read(line: &str) -> Option<Write> {
    let mut words = line.split(' ');
    let client = words.next()?.parse().ok()?;
    let id = words.next()?.parse().ok()?;
    let is_accepted = one_of(words.next()?, "refused", "accepted")?;
    let is_valid = one_of(words.next()?, "late", "valid")?;
    Some(Write { writer: Writer { client, id }, is_accepted, is_valid })
}

fn one_of(word: &str, no: &str, yes: &str) -> Option<bool> {
    [no, yes].into_iter().position(|one| one == word).map(|place| place == 1)
}

fn highest(resource: u16) -> String {
    format!("token:{resource}")
}

fn writes(resource: u16) -> String {
    format!("writes:{resource}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITERS: [Writer; 3] =
        [Writer { client: 0, id: 1 }, Writer { client: 1, id: 1 }, Writer { client: 1, id: 2 }];

    #[tokio::test]
    async fn a_cell_refuses_what_is_lower_than_the_highest_it_has_taken() {
        let server = Server::start();
        let cells = FencedCells::beside(&Cells::open(&server.url()).await.expect("a connection"));
        assert_eq!(cells.highest(7).await, Ok(0));
        let [a, b, c] = WRITERS;
        // Beyond what a double of Lua prints in full.
        let big = 1_700_000_000_000_000;
        for (writer, token) in [(a, big), (b, big + 2), (c, big + 1), (b, big + 2), (a, big)] {
            cells.write(7, writer, token, u64::MAX >> 12).await.expect("a cell");
        }
        cells.write(7, c, big + 3, 1).await.expect("a cell");
        assert_eq!(cells.highest(7).await, Ok(big + 3));
        let (writes, others) = audit(&server, 7);
        let fates: Vec<_> = writes.iter().map(|write| (write.writer, write.is_accepted)).collect();
        let expected = [(a, true), (b, true), (c, false), (b, true), (a, false), (c, true)];
        assert_eq!(fates, expected);
        let valid: Vec<_> = writes.iter().map(|write| write.is_valid).collect();
        assert_eq!(valid, [true, true, true, true, true, false]);
        assert_eq!((others.len(), audit(&server, 8).0.len()), (0, 0));
    }

    #[test]
    fn what_is_no_write_is_not_passed_over() {
        let write = Write { writer: WRITERS[2], is_accepted: true, is_valid: false };
        assert_eq!(read("1 2 accepted late"), Some(write));
        for line in ["", "1 2 accepted", "1 2 accepted soon", "1 2 taken late", "1 x refused late"]
        {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
