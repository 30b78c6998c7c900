-- Runs another script that sets one lock key, for a writer of a lock that also has readers.
--   set_key    the other script, as a function of KEYS and ARGV
--   KEYS       keys of the other script, the first of which is the lock key; then the readers, the
--              writer's intent, and the request of a waiting reader
--   ARGV[1]    TTL of the writer in ms
--   ARGV[2]    intent of the writer if it waits, otherwise empty
--   ARGV[3..]  arguments of the other script
-- Returns the result of the other script.
-- An intent is the TTL of a writer in ms, a space and a value that identifies the acquire. A writer
-- that waits for readers stores it for two of its TTLs. In the first one, new readers are refused.
-- In the second one, no writer can store another intent. A key that exists for longer is ignored:
-- the node's clock was put back. A request is for how long the lock is left to readers after a
-- write, in ms, a space and a value that identifies the acquire. The client deletes the intent or
-- the request when the acquire or its lease ends.
local READERS = 'quorlock:readers'
local call, others = redis.call, #KEYS - 3
local lock, intent, waiting = KEYS[1], KEYS[others + 2], KEYS[others + 3]
local found = call('MGET', intent, waiting)
local function first_number(text)
  return tonumber(string.match(text or '', '^%d+'))
end
local ttl, window = first_number(found[1]), first_number(found[2])
local blocked = ttl and call('PTTL', intent) - ttl
local is_void = blocked and blocked > ttl

-- Readers that have waited for an earlier writer go first, unless a writer has waited for readers.
local left = window and call('PTTL', waiting) or -1
local readers_first = left >= 0 and not (blocked and blocked > 0 and not is_void)
if readers_first then
  local held = redis.pcall('GET', lock)
  if held == false or held == READERS then
    if left > window then
      left = window
      call('PEXPIRE', waiting, string.format('%.0f', left))
    end
    if held == false then
      call('DEL', KEYS[others + 1])
      call('SET', lock, READERS, 'PX', string.format('%.0f', math.max(left, 1)))
    end
  end
end
local answer = set_key({ unpack(KEYS, 1, others) }, { unpack(ARGV, 3) })
local is_table = type(answer) == 'table'
if is_table and not (answer.ok or answer.err) then
  local conflict = type(answer[1]) == 'table' and answer[1] or answer
  if conflict[3] == READERS then
    if readers_first then
      conflict[1] = math.min(conflict[1], left)
    elseif ARGV[2] ~= '' then
      local lifetime = string.format('%.0f', 2 * ARGV[1])
      call('SET', intent, ARGV[2], is_void and 'XX' or 'NX', 'PX', lifetime)
    end
  end
end
return answer
