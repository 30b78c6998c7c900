-- Compares the counter of a scheduled job with the number of a period. If the counter is missing or
-- lower, can raise it to this number.
--   KEYS[1]  counter key
--   ARGV[1]  number of the period
--   ARGV[2]  TTL of the raised counter in ms; 0: the counter is not raised
-- Returns 1 if the counter was missing or lower. Otherwise, returns { the counter as a string, its
-- PTTL (-1: no expiry) } without effect. Returns an error without effect if it holds no number.
local END = 9007199254740992 -- 2^53: doubles above it are not exact
local digits = redis.pcall('GET', KEYS[1])
if digits then
  local number = tonumber(digits)
  if not number or number < 0 or number >= END or number % 1 ~= 0 then
    if type(digits) == 'table' and not string.find(digits.err, 'WRONGTYPE', 1, true) then
      return digits
    end
    return redis.error_reply('COUNTER the key of a job counter holds another value: delete it')
  end
  if number >= tonumber(ARGV[1]) then
    return { string.format('%.0f', number), redis.call('PTTL', KEYS[1]) }
  end
end
if ARGV[2] ~= '0' then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return 1
