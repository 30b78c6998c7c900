-- Deletes the keys that hold ARGV[1].
--   KEYS     lock keys
--   ARGV[1]  expected value
-- Returns the index of the first deleted key, or 0 if no key holds the value.
local first = 0
for i, key in ipairs(KEYS) do
  local held = redis.pcall('GET', key)
  if held == ARGV[1] then
    redis.call('DEL', key)
    first = first == 0 and i or first
  elseif type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
  end
end
return first
