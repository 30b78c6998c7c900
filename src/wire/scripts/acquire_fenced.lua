-- Sets one lock, and draws a number from the counter beside it. The same as acquire.lua under
-- fenced.lua that draws, in three calls instead of four and without what several keys need.
--   KEYS[1]  the lock's key
--   KEYS[2]  its counter's
--   ARGV[1]  what the number is at least
--   ARGV[2]  the counter's ttl in milliseconds
--   ARGV[3]  the holder's value
--   ARGV[4]  the ttl in milliseconds
-- Returns the number, as the integer that it is; or, if another value stands there, of that what
-- acquire.lua returns, and in digits what the counter shows. Returns an error, and nothing is done, if
-- the counter shows no number, or is at its end.
local MOST = 4200 -- bytes: the longest value of a lock is shorter
local END = 9007199254740992 -- 2^53: from there on a double does not tell neighbours apart
local digits = redis.pcall('GET', KEYS[2]) or 0
local shown = tonumber(digits)
if not shown or shown < 0 or shown >= END or shown % 1 ~= 0 then
  if type(digits) == 'table' and not string.find(digits.err, 'WRONGTYPE', 1, true) then
    return digits
  end
  return redis.error_reply('COUNTER something else stands at the key of a fencing counter')
end
local number, least = shown + 1, tonumber(ARGV[1])
if number < least then
  number = least
end
if number >= END then
  return redis.error_reply('COUNTER a fencing counter is at its end: delete its key')
end
if not redis.call('SET', KEYS[1], ARGV[3], 'NX', 'PX', ARGV[4]) then
  local held = redis.pcall('GET', KEYS[1])
  if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
  end
  if held ~= ARGV[3] then
    local left = redis.call('PTTL', KEYS[1])
    local told = type(held) == 'string' and #held <= MOST and held or nil
    return { { left, 1, told }, string.format('%.0f', shown) }
  end
end
local drawn = number == least and ARGV[1] or string.format('%.0f', number)
redis.call('SET', KEYS[2], drawn, 'PX', ARGV[2])
return number
