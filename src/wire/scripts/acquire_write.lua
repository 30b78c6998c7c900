-- Runs another script that sets one lock key, for a writer of a lock that also has readers.
--   set_key    the other script, as a function of KEYS and ARGV
--   KEYS       keys of the other script, the first of which is the lock key; then the readers, the
--              writer's intent, and whether readers wait, as in acquire_shared.lua
--   ARGV[1]    TTL of the writer in ms
--   ARGV[2]    1 if the writer waits, otherwise 0
--   ARGV[3]    for how long waiting readers go first, in ms
--   ARGV[4..]  arguments of the other script
-- Returns the result of the other script.
-- A writer that waits for readers sets its intent: new readers are refused for ARGV[1]. For as long
-- again, no writer sets another intent. The writer deletes the intent when it releases the lock.
local READERS = 'quorlock:readers'
local call, others = redis.call, #KEYS - 3
local lock, intent, waiting = KEYS[1], KEYS[others + 2], KEYS[others + 3]
local blocked_until = tonumber(call('GET', intent) or nil)
local left = call('PTTL', waiting)
local time = (blocked_until or left >= 0 or ARGV[2] == '1') and call('TIME')
local now = time and time[1] * 1000 + math.floor(time[2] / 1000)

-- Readers that have waited for an earlier writer go first, unless a writer has waited for readers.
local readers_first = left >= 0 and not (blocked_until and blocked_until > now)
if readers_first then
  local held = redis.pcall('GET', lock)
  if held == false or held == READERS then
    if left > tonumber(ARGV[3]) then
      left = tonumber(ARGV[3])
      call('PEXPIRE', waiting, ARGV[3])
    end
    if held == false then
      call('DEL', KEYS[others + 1])
      call('SET', lock, READERS, 'PX', string.format('%.0f', math.max(left, 1)))
    end
  end
end
local answer = set_key({ unpack(KEYS, 1, others) }, { unpack(ARGV, 4) })
local is_table = type(answer) == 'table'
if is_table and not (answer.ok or answer.err) then
  local conflict = type(answer[1]) == 'table' and answer[1] or answer
  if conflict[3] == READERS then
    if readers_first then
      conflict[1] = math.min(conflict[1], left)
    elseif ARGV[2] == '1' then
      local blocks_until = string.format('%.0f', now + ARGV[1])
      call('SET', intent, blocks_until, 'NX', 'PX', string.format('%.0f', 2 * ARGV[1]))
    end
  end
end
return answer
