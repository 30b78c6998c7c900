-- Writes a value, unless a higher token was seen. The value and the token are fields of one hash, so
-- that they last equally long.
--   KEYS[1]  the hash
--   ARGV[1]  the writer's token, in digits
--   ARGV[2]  the value; without it, the token is shown and nothing is written
-- Returns { 1, the value } if that was done; { 0, the highest token seen } if it came too late.
-- Tokens are below 2^53, so the doubles of Lua compare them exactly.
local highest = redis.call('HGET', KEYS[1], 'token')
if highest and tonumber(ARGV[1]) < tonumber(highest) then
  return { 0, highest }
end
redis.call('HSET', KEYS[1], 'token', ARGV[1])
if ARGV[2] then
  redis.call('HSET', KEYS[1], 'value', ARGV[2])
end
return { 1, redis.call('HGET', KEYS[1], 'value') or '' }
