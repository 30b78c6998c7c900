-- Adds a reader to a lock, or extends a reader. Each reader has its own expiry by the node's clock.
-- As a key does, it exists until the end of the ms of its expiry.
--   KEYS[1]  lock key: while the lock has readers, it holds READERS, and expires with the last of
--            them
--   KEYS[2]  readers: 'EXPIRY VALUE' of the only reader, or a sorted set of their values by expiry;
--            in ms since 1970
--   KEYS[3]  writer's intent: until when new readers must wait, in ms since 1970
--   KEYS[4]  whether readers wait for a writer
--   KEYS[5]  fencing counter (optional)
--   ARGV[1]  value of the reader
--   ARGV[2]  TTL in ms
--   ARGV[3]  wait: adds the reader, and records that it waits if it is refused
--            try: adds the reader
--            extend: raises the TTL of the reader to at least ARGV[2], and never adds it
-- If the lock key holds ARGV[1], the caller is the writer, and becomes a reader. Its intent ends.
-- Returns OK; with a counter, { OK, its number as a string }. If another client has written the lock
-- key or wants to, returns { PTTL (-1: no expiry), 1, value }; without the value if it is not a
-- string or too long, or if a writer waits. With extend, returns 1, 0 if the reader is missing or
-- has expired, -1 if the lock key holds another value.
local MAX = 4200 -- bytes; no lock has a longer value
local READERS = 'quorlock:readers'
local call, value, extends = redis.call, ARGV[1], ARGV[3] == 'extend'
local found = redis.pcall('MGET', KEYS[1], KEYS[2], KEYS[3])
if found.err then
  return found
end
-- False if the key is missing or holds no string.
local held, intent = found[1], tonumber(found[3] or nil)
local only_ends, only = string.match(found[2] or '', '^(%d+) (.*)$')
local function refuse(left, holder)
  if ARGV[3] == 'wait' then
    -- Redis 7.2.0 to 7.2.4 pass multiples of 10^8 with an exponent, which is an error in SET.
    call('SET', KEYS[4], 1, 'PX', string.format('%.0f', math.max(left, 0) + ARGV[2]))
  end
  return { left, 1, holder }
end
if held and held ~= READERS and held ~= value then
  if extends then
    return -1
  end
  return refuse(call('PTTL', KEYS[1]), #held <= MAX and held or nil)
end
local left = held == value and call('PTTL', KEYS[1])
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local expiry = now + ARGV[2]
local own
if held == READERS then
  if only then
    own = only == value and tonumber(only_ends)
  else
    own = tonumber(call('ZSCORE', KEYS[2], value) or nil)
  end
end
if own and own < now then
  own = nil
end
if held == value then
  expiry = math.max(expiry, now + left)
  call('DEL', KEYS[3])
elseif not own then
  if extends then
    local other = not held and redis.pcall('GET', KEYS[1])
    if type(other) == 'table' then
      return string.find(other.err, 'WRONGTYPE', 1, true) and -1 or other
    end
    return 0
  end
  if intent and intent > now then
    return refuse(intent - now)
  end
end
local number = KEYS[5] and (call('GET', KEYS[5]) or '0')
if held ~= READERS or only == value then
  if not own or own < expiry then
    local ends = string.format('%.0f', expiry)
    if not call('SET', KEYS[1], READERS, 'PXAT', ends, held and 'XX' or 'NX') then
      return refuse(call('PTTL', KEYS[1])) -- no string
    end
    call('SET', KEYS[2], ends .. ' ' .. value, 'PXAT', ends)
  end
else
  if only then
    call('DEL', KEYS[2])
    local added = redis.pcall('ZADD', KEYS[2], only_ends, only)
    if type(added) == 'table' then
      call('SET', KEYS[2], found[2], 'PXAT', only_ends)
      return added
    end
  end
  call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - 1)
  if not own or own < expiry then
    call('ZADD', KEYS[2], expiry, value)
    local last = call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
    call('PEXPIREAT', KEYS[1], last)
    call('PEXPIREAT', KEYS[2], last)
  end
end
if extends then
  return 1
end
if number then
  return { redis.status_reply('OK'), number }
end
return redis.status_reply('OK')
