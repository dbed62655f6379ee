-- Writes down grants that still stand.
-- Keys: lock and grant of each. Arguments: owner, token and age in us of each. Answer: 1.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
for at = 1, #KEYS / 2 do
  local lock, owner, token, age = KEYS[at * 2 - 1], ARGV[at * 3 - 2], ARGV[at * 3 - 1], ARGV[at * 3]
  if redis.pcall('GET', lock) == owner then
    local left = redis.call('PTTL', lock)
    if left > 0 then
      redis.call('SET', KEYS[at * 2], token .. ' ' .. string.format('%.0f', now - age) .. ' ' .. owner, 'PX', left)
    end
  end
end
return 1
