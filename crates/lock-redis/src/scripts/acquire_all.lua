-- Takes several locks that are all free, or none of them.
-- Keys: tokens; and of each lock: lock, grant, line.
-- Arguments: of each lock: owner, lease in ms.
-- Answer: the token of each, or nothing, and then nothing was done.

local time = now()
for at = 1, #ARGV / 2 do
  if redis.call('EXISTS', KEYS[3 * at - 1], KEYS[3 * at + 1]) > 0 then
    return false
  end
end
local granted = {}
for at = 1, #ARGV / 2 do
  local owner, lease = ARGV[2 * at - 1], ARGV[2 * at]
  local token = give(KEYS[3 * at - 1], KEYS[1], owner, lease, time)
  redis.call('SET', KEYS[3 * at], token .. ' ' .. time .. ' ' .. owner, 'PX', lease)
  granted[at] = token
end
return granted
