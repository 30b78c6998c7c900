-- Puts another value in the place of the one that stands there, for a new ttl: to take a lock over
-- from whom it was handed over by, or to leave a released one standing for a while.
--   KEYS     the locks' keys
--   ARGV[1]  the value that must stand there
--   ARGV[2]  the value to put in its place
--   ARGV[3]  the ttl in milliseconds
-- Each key is swapped by itself. Returns 1 if all were, 0 if a key was missing, -1 if another value
-- stood there.
local outcome = 1
for _, key in ipairs(KEYS) do
  local held = redis.pcall('GET', key)
  if held == ARGV[1] then
    redis.call('SET', key, ARGV[2], 'PX', ARGV[3])
  elseif held == false then
    outcome = math.min(outcome, 0)
  elseif type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
  else
    outcome = -1
  end
end
return outcome
