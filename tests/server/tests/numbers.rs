//! Test of the numbers that the scripts of reader-writer locks pass to commands, on a real server.
#![cfg(target_os = "linux")]

const ACQUIRE: &str = include_str!("../../../src/wire/scripts/acquire.lua");
const ACQUIRE_SHARED: &str = include_str!("../../../src/wire/scripts/acquire_shared.lua");
const ACQUIRE_WRITE: &str = include_str!("../../../src/wire/scripts/acquire_write.lua");
const RELEASE_SHARED: &str = include_str!("../../../src/wire/scripts/release_shared.lua");

/// Lua code that rejects the integers that Redis 7.2.0 to 7.2.4 pass to commands with an exponent: the multiples of
/// 10^8. Commands accept an exponent only in a score.
const STRICT: &str = "
local real = redis
local function checked(run)
  return function(name, ...)
    for _, argument in ipairs({ ... }) do
      if type(argument) == 'number' and argument >= 1e8 and argument % 1e8 == 0 then
        assert(name == 'ZADD' or name == 'ZREMRANGEBYSCORE', name .. ' gets a number with an exponent')
      end
    end
    return run(name, ...)
  end
end
local redis = setmetatable({ call = checked(real.call), pcall = checked(real.pcall) }, { __index = real })
";

#[test]
fn scripts_pass_multiples_of_a_hundred_million_as_strings() {
    let server = kit::Server::start();
    let write = format!("local function set_key(KEYS, ARGV)\n{ACQUIRE}\nend\n{ACQUIRE_WRITE}");
    let keys = ["lock", "readers", "intent", "waiting"];
    let call = |script: &str, keys: &[&str], arguments: &[&str]| {
        let (source, count) = (format!("{STRICT}{script}"), keys.len().to_string());
        let words = [&["EVAL", &source, &count], keys, arguments].concat();
        format!("{:?}", server.cmd(&words))
    };
    for ttl in ["50000000", "100000000", "300000000000"] {
        // A writer waits for a reader, and new readers wait for the writer.
        let (intent, request) = (format!("{ttl} w"), format!("{ttl} r"));
        assert_eq!(call(ACQUIRE_SHARED, &keys, &["a", ttl, "try", &request]), "ok");
        let refused = call(&write, &keys, &[ttl, &intent, "w", ttl]);
        assert!(refused.contains("quorlock:readers"), "{refused}");
        let refused = call(ACQUIRE_SHARED, &keys, &["b", ttl, "try", &request]);
        assert!(refused.starts_with("array([int("), "{refused}");
        assert_eq!(call(RELEASE_SHARED, &keys[..2], &["a", "cool", ttl]), "int(1)");
        assert_eq!(call(RELEASE_SHARED, &keys[..2], &["cool"]), "int(2)");
        // The waiting reader goes first.
        server.cmd(&["DEL", "intent"]);
        let refused = call(&write, &keys, &[ttl, &intent, "w", ttl]);
        assert!(refused.contains("quorlock:readers"), "{refused}");
        // A reader waits for a lock key without an expiry.
        server.cmd(&["SET", "lock", "foreign"]);
        let refused = call(ACQUIRE_SHARED, &keys, &["b", ttl, "try", &request]);
        assert!(refused.starts_with("array([int(-1), int(1), bulk-string"), "{refused}");
        server.cmd(&["FLUSHALL"]);
    }
}
