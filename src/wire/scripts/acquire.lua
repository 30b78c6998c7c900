-- Sets all keys of a set of locks, or none. Keys that have our value already are left as they are
-- (so the same script puts lost ones back).
--   KEYS     the locks' keys
--   ARGV[1]  the holder's value
--   ARGV[2]  the ttl in milliseconds
-- Returns OK; or, if others hold some of the keys, of that which stands longest the PTTL (-1: for
-- ever), the place among KEYS, counted from 1, and the value, if it is a string that a lock can have.
local MOST = 4200 -- bytes: the longest value of a lock is shorter
local longest, place, value
local missing = {}
for i, key in ipairs(KEYS) do
  local held = redis.pcall('GET', key)
  if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
  end
  if held == false then
    missing[#missing + 1] = key
  elseif held ~= ARGV[1] then
    local left = redis.call('PTTL', key)
    if not place or left == -1 or (longest ~= -1 and left > longest) then
      longest, place, value = left, i, type(held) == 'string' and #held <= MOST and held or nil
    end
  end
end
if place then
  return { longest, place, value }
end
for _, key in ipairs(missing) do
  redis.call('SET', key, ARGV[1], 'PX', ARGV[2])
end
return redis.status_reply('OK')
