-- Reads a lock.
--   KEYS[1]  the lock's key
-- Returns the value and its PTTL (-1: it has no expiry); -2 if there is no key; the PTTL alone if
-- what stands there is no string.
local held = redis.pcall('GET', KEYS[1])
if held == false then
  return -2
end
if type(held) == 'table' then
  if string.find(held.err, 'WRONGTYPE', 1, true) then
    return redis.call('PTTL', KEYS[1])
  end
  return held
end
return { held, redis.call('PTTL', KEYS[1]) }
