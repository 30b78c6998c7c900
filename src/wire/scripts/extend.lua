-- Makes the remaining ttl of locks at least ARGV[2], if all of them are still ours. Never shortens
-- it, and never creates a key.
--   KEYS     the locks' keys
--   ARGV[1]  the holder's value
--   ARGV[2]  the ttl in milliseconds
-- Returns the lowest PTTL found (-1: none had an expiry), -2 if a key is missing, -3 if one is not
-- ours.
local missing = false
for _, key in ipairs(KEYS) do
  local held = redis.pcall('GET', key)
  if held == false then
    missing = true
  elseif type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
  elseif held ~= ARGV[1] then
    return -3
  end
end
if missing then
  return -2
end
local lowest = -1
for _, key in ipairs(KEYS) do
  local left = redis.call('PTTL', key)
  if left < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', key, ARGV[2])
  end
  if lowest == -1 or (left ~= -1 and left < lowest) then
    lowest = left
  end
end
return lowest
