-- Runs another script on locks, and lets a counter beside each lock follow: where it did what it was
-- asked, all counters go to one number that is above, or not below, all that they have shown.
--   unfenced  the other script, as a function of KEYS and ARGV
--   KEYS      the locks' keys, then their counters' in the same order
--   ARGV[1]   what the number is at least
--   ARGV[2]   1 to draw a number above what the counters show, 0 to keep what they show
--   ARGV[3]   the counters' ttl in milliseconds
--   ARGV[4]   the least answer of the other script, if it is a number, that says that it was done
--   ARGV[5..] the other script's own
-- Returns the other script's answer, and in digits the number, or what the counters show if nothing was
-- done. Nothing is done when a counter shows no number, or is at its end.
local END = 9007199254740992 -- 2^53: from there on a double does not tell neighbours apart
local locks, counters = {}, {}
for i = 1, #KEYS / 2 do
  locks[i], counters[i] = KEYS[i], KEYS[#KEYS / 2 + i]
end
local shown = 0
for _, counter in ipairs(counters) do
  local digits = redis.pcall('GET', counter) or '0'
  if type(digits) == 'table' and not string.find(digits.err, 'WRONGTYPE', 1, true) then
    return digits
  elseif type(digits) == 'table' or not string.find(digits, '^%d+$') then
    return redis.error_reply('COUNTER something else stands at the key of a fencing counter')
  end
  shown = math.max(shown, tonumber(digits))
end
local number = math.max(shown + tonumber(ARGV[2]), tonumber(ARGV[1]))
if number >= END then
  return redis.error_reply('COUNTER a fencing counter is at its end: delete its key')
end
local answer = unfenced(locks, { unpack(ARGV, 5) })
if type(answer) == 'table' and answer.err then
  return answer
end
local is_done = type(answer) == 'table' and answer.ok
  or type(answer) == 'number' and answer >= tonumber(ARGV[4])
if is_done then
  shown = number
  for _, counter in ipairs(counters) do
    redis.call('SET', counter, string.format('%.0f', number), 'PX', ARGV[3])
  end
end
return { answer, string.format('%.0f', shown) }
