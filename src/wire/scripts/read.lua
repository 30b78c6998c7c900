-- Reads value and TTL of a lock, and its fencing counter on request.
--   KEYS[1]  lock key
--   KEYS[2]  optional: fencing counter
-- Returns { value, PTTL (-1: no expiry) }; -2 if the lock key is missing; only the PTTL if it holds
-- no string, or one longer than any lock's value.
-- With KEYS[2], returns { that result, the counter as a string }. The counter is 0 if its key is
-- missing or holds no number.
local MAX = 4200 -- bytes; no lock has a longer value
local END = 9007199254740992 -- 2^53: no counter has a higher number
local held = redis.pcall('GET', KEYS[1])
local found = -2
if held then
  if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
  end
  found = redis.call('PTTL', KEYS[1])
  if type(held) == 'string' and #held <= MAX then
    found = { held, found }
  end
end
if not KEYS[2] then
  return found
end
local digits = redis.pcall('GET', KEYS[2])
local number = type(digits) == 'string' and tonumber(digits) or 0
if not (number > 0 and number < END and number % 1 == 0) then
  number = 0
end
return { found, string.format('%.0f', number) }
