-- Runs another script on locks, and lets a counter beside each lock follow: where it did what it was
-- asked, all counters go to one number that is above, or not below, all that they have shown.
--   unfenced  the other script, as a function of KEYS and ARGV
--   KEYS      the locks' keys, then their counters' in the same order
--   ARGV[1]   what the number is at least
--   ARGV[2]   draw: the number is above what the counters show
--             keep: it is what they show
--             try:  the same, but the other script runs also if some of them show no number, and those
--                   are left alone
--   ARGV[3]   the counters' ttl in milliseconds
--   ARGV[4]   the least answer of the other script, if it is a number, that says that it was done
--   ARGV[5..] the other script's own
-- Returns the other script's answer, and in digits the number, or what the counters show if nothing was
-- done. Where it does not only try, it returns an error, and nothing is done, if a counter shows no
-- number, or is at its end.
local END = 9007199254740992 -- 2^53: from there on a double does not tell neighbours apart
local half = #KEYS / 2
local tries = ARGV[2] == 'try'
local counters = {}
local shown = 0
for i = half + 1, 2 * half do
  local digits = redis.pcall('GET', KEYS[i]) or 0
  local number = tonumber(digits)
  if number and number >= 0 and number < END and number % 1 == 0 then
    counters[#counters + 1] = KEYS[i]
    if number > shown then
      shown = number
    end
  elseif not tries then
    if type(digits) == 'table' and not string.find(digits.err, 'WRONGTYPE', 1, true) then
      return digits
    end
    return redis.error_reply('COUNTER something else stands at the key of a fencing counter')
  end
end
local number, least = shown, tonumber(ARGV[1])
if ARGV[2] == 'draw' then
  number = shown + 1
end
if number < least then
  number = least
end
if number >= END then
  return redis.error_reply('COUNTER a fencing counter is at its end: delete its key')
end
local answer = unfenced({ unpack(KEYS, 1, half) }, { unpack(ARGV, 5) })
local kind = type(answer)
if kind == 'table' and answer.err then
  return answer
end
if kind == 'number' and answer >= tonumber(ARGV[4]) or kind == 'table' and answer.ok then
  shown = number
  for _, counter in ipairs(counters) do
    redis.call('SET', counter, string.format('%.0f', number), 'PX', ARGV[3])
  end
end
return { answer, string.format('%.0f', shown) }
