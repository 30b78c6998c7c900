-- Ends locks, each if the value that is asked for stands there: deletes it, or puts another value in
-- its place, to take the lock over from whom it was handed over by, or to leave a released one standing
-- for a while.
--   KEYS     the locks' keys
--   ARGV[1]  the value that must stand there
--   ARGV[2]  the value to put in its place; not given to delete the key
--   ARGV[3]  the ttl of that value in milliseconds; not given without it
-- Each key is looked at by itself. Returns 1 if all were deleted or replaced, 0 if a key was missing, -1
-- if another value stood there.

-- One lock that is deleted and stands there: what nearly all releases are, without what others need.
if not KEYS[2] and not ARGV[2] and redis.pcall('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
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
