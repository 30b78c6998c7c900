-- Reads value and TTL of a lock.
--   KEYS[1]  lock key
-- Returns { value, PTTL (-1: no expiry) }; -2 if the key is missing; only the PTTL if it holds no
-- string, or one longer than any lock's value.
local MAX = 4200 -- bytes; no lock has a longer value
local held = redis.pcall('GET', KEYS[1])
if held == false then
  return -2
end
if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
  return held
end
local left = redis.call('PTTL', KEYS[1])
if type(held) == 'string' and #held <= MAX then
  return { held, left }
end
return left
