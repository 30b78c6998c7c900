-- Raises the TTL of all keys to at least ARGV[2], if all of them hold the value. Never shortens a
-- TTL, and never creates a key.
--   KEYS     lock keys
--   ARGV[1]  value
--   ARGV[2]  TTL in ms
-- Returns 1 if the keys hold the value, 0 if a key is missing, -1 if a key holds another value.
local missing = false
for _, key in ipairs(KEYS) do
  local held = redis.pcall('GET', key)
  if held == false then
    missing = true
  elseif type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
  elseif held ~= ARGV[1] then
    return -1
  end
end
if missing then
  return 0
end
for _, key in ipairs(KEYS) do
  if redis.call('PTTL', key) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', key, ARGV[2])
  end
end
return 1
