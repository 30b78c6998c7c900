-- Raises the TTL of all keys to at least ARGV[2], if all of them hold the value. Never shortens a
-- TTL, and never creates a key.
--   KEYS     lock keys
--   ARGV[1]  value
--   ARGV[2]  TTL in ms
-- Returns the lowest PTTL before (-1: no key had an expiry), -2 if a key is missing, -3 if a key
-- holds another value.
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
