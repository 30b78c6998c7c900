-- Sets one key and increments its fencing counter. Same as acquire.lua under fenced.lua with
-- 'incr', in three calls instead of four.
--   KEYS[1]  lock key
--   KEYS[2]  counter key
--   ARGV[1]  minimum of the new number
--   ARGV[2]  TTL of the counter in ms
--   ARGV[3]  value
--   ARGV[4]  TTL in ms
-- Returns the number as an integer. On a conflict, returns { the result of acquire.lua, the
-- counter's current value as a string }. Returns an error without effect if the counter holds no
-- number or has reached its maximum.
local MAX = 4200 -- bytes; no lock has a longer value
local END = 9007199254740992 -- 2^53: doubles above it are not exact
local digits = redis.pcall('GET', KEYS[2]) or 0
local current = tonumber(digits)
if not current or current < 0 or current >= END or current % 1 ~= 0 then
  if type(digits) == 'table' and not string.find(digits.err, 'WRONGTYPE', 1, true) then
    return digits
  end
  return redis.error_reply('COUNTER the key of a fencing counter holds another value: delete it')
end
local number, minimum = current + 1, tonumber(ARGV[1])
if number < minimum then
  number = minimum
end
if number >= END then
  return redis.error_reply('COUNTER a fencing counter has reached its maximum: delete its key')
end
if not redis.call('SET', KEYS[1], ARGV[3], 'NX', 'PX', ARGV[4]) then
  local held = redis.pcall('GET', KEYS[1])
  if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
  end
  if held ~= ARGV[3] then
    local left = redis.call('PTTL', KEYS[1])
    local value = type(held) == 'string' and #held <= MAX and held or nil
    return { { left, 1, value }, string.format('%.0f', current) }
  end
end
local drawn = number == minimum and ARGV[1] or string.format('%.0f', number)
redis.call('SET', KEYS[2], drawn, 'PX', ARGV[2])
return number
