-- Writes a value, unless a higher token was seen. The value and the token are fields of one hash, so they are
-- stored and deleted together.
--   KEYS[1]  the hash
--   ARGV[1]  the writer's token, in decimal digits
--   ARGV[2]  the value; if it is missing, the token is recorded and the value is only read
-- Returns { 1, the value }, or { 0, the highest token seen } if the token is stale.
-- Tokens are below 2^53, so Lua's doubles compare them exactly.
local highest = redis.call('HGET', KEYS[1], 'token')
if highest and tonumber(ARGV[1]) < tonumber(highest) then
  return { 0, highest }
end
redis.call('HSET', KEYS[1], 'token', ARGV[1])
if ARGV[2] then
  redis.call('HSET', KEYS[1], 'value', ARGV[2])
end
return { 1, redis.call('HGET', KEYS[1], 'value') or '' }
