-- Deletes a lock, if it is still ours.
--   KEYS[1]  the lock's key
--   ARGV[1]  the holder's value
-- Returns 1 if it was deleted, 0 if there is no key, -1 if it is not ours.
local held = redis.pcall('GET', KEYS[1])
if held == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
if held == false then
  return 0
end
if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
  return held
end
return -1
