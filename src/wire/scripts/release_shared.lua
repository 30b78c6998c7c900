-- Removes a reader from a lock. The last reader deletes the lock key.
--   KEYS[1]  lock key
--   KEYS[2]  readers
--   ARGV[1]  value of the reader
--   ARGV[2]  value of a reader that takes its place, to start a cool-down (optional)
--   ARGV[3]  TTL of the new reader in ms
-- If the lock key holds ARGV[1], the caller is still the writer on this node, and the key is
-- deleted or replaced.
-- Returns 1 if the reader was removed or replaced, 2 if the lock key was deleted, 0 if the reader was
-- missing or had expired, -1 if the lock key holds another value.
local READERS = 'quorlock:readers'
local call = redis.call
local found = redis.pcall('MGET', KEYS[1], KEYS[2])
if found.err then
  return found
end
-- Each is false if its key is missing or holds no string.
local held, only = found[1], found[2]
if held == ARGV[1] then
  if ARGV[2] then
    call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
    return 1
  end
  call('DEL', KEYS[1])
  return 2
elseif held ~= READERS then
  local other = held or redis.pcall('GET', KEYS[1])
  if type(other) == 'table' and not string.find(other.err, 'WRONGTYPE', 1, true) then
    return other
  end
  return other and -1 or 0
end
if only and only ~= ARGV[1] then
  return 0
elseif only and ARGV[2] then
  call('SET', KEYS[1], READERS, 'PX', ARGV[3])
  call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
  return 1
elseif only then
  call('DEL', KEYS[1], KEYS[2])
  return 2
end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - 1)
local own = tonumber(call('ZSCORE', KEYS[2], ARGV[1]) or nil)
if not own then
  return 0
end
call('ZREM', KEYS[2], ARGV[1])
if ARGV[2] then
  call('ZADD', KEYS[2], now + ARGV[3], ARGV[2])
end
local last = tonumber(call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] or nil)
if not last then
  call('DEL', KEYS[1], KEYS[2])
  return 2
end
if ARGV[2] or own > last then
  -- PEXPIREAT deletes the key if this ms has begun, but the last reader exists until the end of its ms.
  local expiry = string.format('%.0f', math.max(last, now + 1))
  call('PEXPIREAT', KEYS[1], expiry)
  call('PEXPIREAT', KEYS[2], expiry)
end
return 1
