-- Makes the remaining ttl of a lock at least ARGV[2], if it is still ours. Never shortens it, and
-- never creates a key.
--   KEYS[1]  the lock's key
--   ARGV[1]  the holder's value
--   ARGV[2]  the ttl in milliseconds
-- Returns the PTTL found (-1: it had no expiry), -2 if there is no key, -3 if it is not ours.
local held = redis.pcall('GET', KEYS[1])
if held == false then
  return -2
end
if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
  return held
end
if held ~= ARGV[1] then
  return -3
end
local left = redis.call('PTTL', KEYS[1])
if left < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return left
