-- Reads a lock.
--   KEYS[1]  the lock's key
-- Returns the value and its PTTL (-1: it has no expiry); -2 if there is no key; the PTTL alone if
-- the key holds no string, or one that is longer than any lock's value.
local MOST = 4200 -- bytes
local held = redis.pcall('GET', KEYS[1])
if held == false then
  return -2
end
if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
  return held
end
local left = redis.call('PTTL', KEYS[1])
if type(held) == 'string' and #held <= MOST then
  return { held, left }
end
return left
