-- Adds a reader to a lock, or extends a reader. Each reader has its own expiry by the node's clock.
-- As a key does, it exists until the end of the ms of its expiry.
--   KEYS[1]  lock key: while the lock has readers, it holds READERS, and expires with the last of
--            them
--   KEYS[2]  readers: a string, the value of the only reader; or a sorted set of their values by
--            expiry, in ms since 1970
--   KEYS[3]  writer's intent, as in acquire_write.lua
--   KEYS[4]  request of a waiting reader, as in acquire_write.lua
--   KEYS[5]  fencing counter (optional)
--   ARGV[1]  value of the reader
--   ARGV[2]  TTL in ms
--   ARGV[3]  try: adds the reader
--            extend: raises the TTL of the reader to at least ARGV[2], and never adds it
--   ARGV[4]  request of the reader, if it waits (optional): stored if the reader is refused, unless
--            another one needs more time; ends soon after the reader is added
-- If the lock key holds ARGV[1], the caller is the writer, and becomes a reader. Its intent ends.
-- Returns OK; with a counter, { OK, its number as a string }. If another client has written the lock
-- key or wants to, returns { PTTL (-1: no expiry), 1, value }; without the value if it is not a
-- string or too long, or if a writer waits. With extend, returns 1, 0 if the reader is missing or
-- has expired, -1 if the lock key holds another value.
local MAX = 4200 -- bytes; no lock has a longer value
local READERS = 'quorlock:readers'
local call, value, ttl, extends = redis.call, ARGV[1], tonumber(ARGV[2]), ARGV[3] == 'extend'
local found = redis.pcall('MGET', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
if found.err then
  return found
end
-- Each is false if its key is missing or holds no string.
local held, only, intent, request = found[1], found[2], found[3], found[4]
local function first_number(text)
  return tonumber(string.match(text or '', '^%d+'))
end
local function refuse(left, holder)
  if ARGV[4] and (first_number(request) or 0) <= first_number(ARGV[4]) then
    -- Redis 7.2.0 to 7.2.4 pass multiples of 10^8 with an exponent, which is an error in SET.
    call('SET', KEYS[4], ARGV[4], 'PX', string.format('%.0f', math.max(left, 0) + ttl))
  end
  return { left, 1, holder }
end
if held and held ~= READERS and held ~= value then
  if extends then
    return -1
  end
  return refuse(call('PTTL', KEYS[1]), #held <= MAX and held or nil)
end
local alone = held ~= READERS or only == value
-- Remaining TTL of the writer or of the only reader. Before TIME: Redis 6.2 reads the clock in each
-- command, and the sum of both must not be too early.
local left = held == value and call('PTTL', KEYS[1]) or held and only and call('PTTL', KEYS[2])
local time = not alone and call('TIME')
local now = time and time[1] * 1000 + math.floor(time[2] / 1000)
local score = not alone and not only and tonumber(call('ZSCORE', KEYS[2], value) or nil)
local holds = held and alone or score and score >= now
if held == value then
  call('DEL', KEYS[3])
elseif not holds then
  if extends then
    local other = not held and redis.pcall('GET', KEYS[1])
    if type(other) == 'table' then
      return string.find(other.err, 'WRONGTYPE', 1, true) and -1 or other
    end
    return 0
  end
  local intent_ttl = first_number(intent)
  local blocked = intent_ttl and call('PTTL', KEYS[3]) - intent_ttl
  if blocked and blocked > 0 and blocked <= intent_ttl then
    return refuse(blocked)
  end
end
local number = KEYS[5] and (call('GET', KEYS[5]) or '0')
if not alone then
  if only then
    call('DEL', KEYS[2])
    local added = redis.pcall('ZADD', KEYS[2], now + left, only)
    if type(added) == 'table' then
      call('SET', KEYS[2], only, 'PX', string.format('%.0f', math.max(left, 1)))
      return added
    end
  end
  call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - 1)
  if not holds or score < now + ttl then
    call('ZADD', KEYS[2], now + ttl, value)
    local last = call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
    call('PEXPIREAT', KEYS[1], last)
    call('PEXPIREAT', KEYS[2], last)
  end
elseif held ~= READERS or left < ttl then
  local longest = left and left > ttl and string.format('%.0f', left) or ARGV[2]
  if not call('SET', KEYS[1], READERS, 'PX', longest, held and 'XX' or 'NX') then
    return refuse(call('PTTL', KEYS[1])) -- no string
  end
  call('SET', KEYS[2], value, 'PX', longest)
end
if extends then
  return 1
end
if ARGV[4] and request == ARGV[4] then
  call('PEXPIRE', KEYS[4], 20) -- other readers may arrive a little later
end
if number then
  return { redis.status_reply('OK'), number }
end
return redis.status_reply('OK')
