-- Compares the counter of a scheduled job with a period. If no call has taken the period, can store
-- its number.
--   KEYS[1]  counter key: the number of the last period that was taken
--   KEYS[2]  record key: `number:mode:length:time:value` of the call that took it
--   ARGV[1]  number of the period
--   ARGV[2]  TTL of the stored keys in ms; 0: only compares
--   ARGV[3]  beginning of the period in microseconds since 1970
--   ARGV[4]  record to store; empty: only the counter is stored
-- A record with another number than the counter is ignored: it is older than the counter. A period is
-- taken if the time of the record is not before its beginning or, without a record, if the counter is
-- not below its number.
-- Returns 1 if the period was not taken, or if the node has the record ARGV[4]. Otherwise, returns
-- { the counter as a string, its PTTL (-1: no expiry), the record (empty: none) } without effect.
-- Returns an error without effect if the counter key holds no number.
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
  local record = redis.pcall('GET', KEYS[2])
  local told, time
  if type(record) == 'string' then
    told, time = string.match(record, '^(%d+):%a+:%d+:(%d+):')
  end
  local is_taken
  if told == digits then
    if record == ARGV[4] then
      return 1
    end
    is_taken = tonumber(time) >= tonumber(ARGV[3])
  else
    record = ''
    is_taken = number >= tonumber(ARGV[1])
  end
  if is_taken then
    return { string.format('%.0f', number), redis.call('PTTL', KEYS[1]), record }
  end
end
if ARGV[2] ~= '0' then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  if ARGV[4] ~= '' then
    redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[2])
  end
end
return 1
