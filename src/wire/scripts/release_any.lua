-- Deletes the key that holds ARGV[1]. At most one of the keys does.
--   KEYS     lock keys
--   ARGV[1]  expected value
-- Returns the index of the deleted key, or 0 if no key holds the value.
for i, key in ipairs(KEYS) do
  local held = redis.pcall('GET', key)
  if held == ARGV[1] then
    redis.call('DEL', key)
    return i
  elseif type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
  end
end
return 0
