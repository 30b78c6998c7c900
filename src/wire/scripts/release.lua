-- Deletes each key that holds ARGV[1], or replaces its value: to adopt a lock, or to start a
-- cool-down.
--   KEYS     lock keys
--   ARGV[1]  expected value
--   ARGV[2]  new value (optional)
--   ARGV[3]  TTL of the new value in ms
-- Returns 1 if all keys were deleted or replaced, 0 if a key was missing, -1 if a key held another
-- value.

-- Fast path: all keys hold the value, and are deleted.
if not ARGV[2] then
  local matching = 0
  while matching < #KEYS and redis.pcall('GET', KEYS[matching + 1]) == ARGV[1] do
    matching = matching + 1
  end
  if matching == #KEYS then
    redis.call('DEL', unpack(KEYS))
    return 1
  end
end
local outcome = 1
for _, key in ipairs(KEYS) do
  local held = redis.pcall('GET', key)
  if held == ARGV[1] then
    if ARGV[2] then
      redis.call('SET', key, ARGV[2], 'PX', ARGV[3])
    else
      redis.call('DEL', key)
    end
  elseif held == false then
    outcome = math.min(outcome, 0)
  elseif type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
  else
    outcome = -1
  end
end
return outcome
