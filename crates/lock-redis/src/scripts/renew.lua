-- Prolongs leases.
-- Keys: lock and grant of each. Arguments: owner and lease in ms of each. Answer for each: 1 held, 0 not.

local answer = {}
for at = 1, #KEYS / 2 do
  local lock, owner, lease = KEYS[at * 2 - 1], ARGV[at * 2 - 1], ARGV[at * 2]
  -- A key of another type is an error, and no hold.
  if redis.pcall('GET', lock) == owner then
    redis.call('PEXPIRE', lock, lease)
    redis.call('PEXPIRE', KEYS[at * 2], lease)
    answer[at] = 1
  else
    answer[at] = 0
  end
end
return answer
