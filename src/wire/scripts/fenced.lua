-- Runs another script on lock keys. If it succeeds, sets the fencing counter of each key to one
-- number: the highest current value, or one more, but at least ARGV[1].
--   unfenced  the other script, as a function of KEYS and ARGV
--   KEYS      lock keys, then their counter keys in the same order
--   ARGV[1]   minimum of the number
--   ARGV[2]   incr: highest current value + 1
--             touch: highest current value
--             try: like touch, but skips counters that hold no number
--   ARGV[3]   TTL of the counters in ms
--   ARGV[4..] arguments of the other script, which succeeds if it returns 1 or OK
-- Returns { result of the other script, the number as a string }; without success, the highest
-- current value instead. Returns an error without effect if a counter holds no number (unless
-- ARGV[2] is 'try'), or has reached its maximum.
local END = 9007199254740992 -- 2^53: doubles above it are not exact
local half = #KEYS / 2
local tries = ARGV[2] == 'try'
local counters = {}
local current = 0
for i = half + 1, 2 * half do
  local digits = redis.pcall('GET', KEYS[i]) or 0
  local number = tonumber(digits)
  if number and number >= 0 and number < END and number % 1 == 0 then
    counters[#counters + 1] = KEYS[i]
    if number > current then
      current = number
    end
  elseif not tries then
    if type(digits) == 'table' and not string.find(digits.err, 'WRONGTYPE', 1, true) then
      return digits
    end
    return redis.error_reply('COUNTER the key of a fencing counter holds another value: delete it')
  end
end
local number, minimum = current, tonumber(ARGV[1])
if ARGV[2] == 'incr' then
  number = current + 1
end
if number < minimum then
  number = minimum
end
if number >= END then
  return redis.error_reply('COUNTER a fencing counter has reached its maximum: delete its key')
end
local answer = unfenced({ unpack(KEYS, 1, half) }, { unpack(ARGV, 4) })
local is_table = type(answer) == 'table'
if is_table and answer.err then
  return answer
end
if answer == 1 or is_table and answer.ok then
  current = number
  for _, counter in ipairs(counters) do
    redis.call('SET', counter, string.format('%.0f', number), 'PX', ARGV[3])
  end
end
return { answer, string.format('%.0f', current) }
