-- Sets the first of several keys that is free or already holds the value.
--   KEYS     lock keys; with counters: lock keys, then their counter keys in the same order
--   ARGV[1]  value
--   ARGV[2]  TTL in ms
--   ARGV[3]  index of the lock key to try first; the others follow in the order of KEYS, cyclically
--   ARGV[4]  1 to subscribe to the key that is set, otherwise 0
--   ARGV[5]  minimum of the fencing number (only with counters)
--   ARGV[6]  TTL of the counter in ms (only with counters)
-- Returns the index of the key that holds the value. With counters, increments the counter of that
-- key and returns { index, the number as a string }. If all keys are held, returns { PTTL (-1: no
-- expiry), index, value } of the key with the shortest TTL; without the value if it is not a string
-- or too long. Returns an error without effect if the counter of the chosen key holds no number or
-- has reached its maximum.
-- After CLIENT CACHING YES, if all keys are held, the node pushes the next change of every key.
local MAX = 4200 -- bytes; no lock has a longer value
local END = 9007199254740992 -- 2^53: doubles above it are not exact

-- Fast path: the key to try first is free.
local call, first = redis.call, tonumber(ARGV[3])
if not ARGV[5] and call('SET', KEYS[first], ARGV[1], 'NX', 'PX', ARGV[2]) then
  if ARGV[4] == '1' then
    call('GET', KEYS[first]) -- subscribes
  end
  return first
end
local count = ARGV[5] and #KEYS / 2 or #KEYS
local chosen, is_free, shortest, place, value
for step = 0, count - 1 do
  local i = (first - 1 + step) % count + 1
  local held = redis.pcall('GET', KEYS[i])
  if held == false or held == ARGV[1] then
    chosen, is_free = i, held == false
    break
  elseif type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
  end
  local left = redis.call('PTTL', KEYS[i])
  if not place or (left ~= -1 and (shortest == -1 or left < shortest)) then
    shortest, place, value = left, i, type(held) == 'string' and #held <= MAX and held or nil
  end
end
if not chosen then
  return { shortest, place, value }
end
local function take()
  if is_free then
    redis.call('SET', KEYS[chosen], ARGV[1], 'PX', ARGV[2])
    if ARGV[4] == '1' then
      redis.call('GET', KEYS[chosen]) -- the SET ended the subscription
    end
  end
end
if not ARGV[5] then
  take()
  return chosen
end
local counter = KEYS[count + chosen]
local digits = redis.pcall('GET', counter) or 0
local current = tonumber(digits)
if not current or current < 0 or current >= END or current % 1 ~= 0 then
  if type(digits) == 'table' and not string.find(digits.err, 'WRONGTYPE', 1, true) then
    return digits
  end
  return redis.error_reply('COUNTER the key of a fencing counter holds another value: delete it')
end
local number = math.max(current + 1, tonumber(ARGV[5]))
if number >= END then
  return redis.error_reply('COUNTER a fencing counter has reached its maximum: delete its key')
end
take()
local drawn = string.format('%.0f', number)
redis.call('SET', counter, drawn, 'PX', ARGV[6])
return { chosen, drawn }
