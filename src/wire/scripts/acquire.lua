-- Sets all keys of a lock, or none. Keys that already hold the value stay unchanged, so the script
-- also restores missing keys.
--   KEYS     lock keys
--   ARGV[1]  value
--   ARGV[2]  TTL in ms
-- Returns OK. On a conflict, returns { PTTL (-1: no expiry), index in KEYS, value } of the
-- conflicting key with the longest TTL; without the value if it is not a string or too long.
local MAX = 4200 -- bytes; no lock has a longer value

-- Fast path: no key exists. Users without permission for EXISTS take the slow path.
if redis.pcall('EXISTS', unpack(KEYS)) == 0 then
  local call, value, ttl = redis.call, ARGV[1], ARGV[2]
  for i = 1, #KEYS do
    call('SET', KEYS[i], value, 'PX', ttl)
  end
  return redis.status_reply('OK')
end
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
      longest, place, value = left, i, type(held) == 'string' and #held <= MAX and held or nil
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
