-- Deletes locks, each if it is still ours.
--   KEYS     the locks' keys
--   ARGV[1]  the holder's value
-- Returns 1 if all were deleted, 0 if a key was missing, -1 if one is not ours.
local outcome = 1
for _, key in ipairs(KEYS) do
  local held = redis.pcall('GET', key)
  if held == ARGV[1] then
    redis.call('DEL', key)
  elseif held == false then
    outcome = math.min(outcome, 0)
  elseif type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
  else
    outcome = -1
  end
end
return outcome
