-- Prolongs leases of those who hold a lock beside others.
-- Keys: lock and line of each. Arguments: owner and lease in ms of each. Answer for each: 1 held, 0 not.

local answer = {}
local time = now()
for at = 1, #KEYS / 2 do
  local lock, line, owner, lease = KEYS[at * 2 - 1], KEYS[at * 2], ARGV[at * 2 - 1], ARGV[at * 2]
  local holders = companion(line, 'holders')
  -- A key of another type is an error, and no hold.
  local fine, kind = pcall(settle, lock, line, time)
  if fine and kind and kind ~= 'x' and redis.call('ZSCORE', holders, owner) then
    redis.call('ZADD', holders, string.format('%.0f', time + lease * 1000), owner)
    end_with_the_last(lock, redis.call('GET', lock), holders, companion(line, 'modes'), time)
    answer[at] = 1
  else
    answer[at] = 0
  end
end
return answer
