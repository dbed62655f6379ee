-- Has a hold go on without its owner. Repeated, it changes nothing.
-- Keys: lock, grant, line; and of a claim with a value: its key.
-- Arguments: owner, its text from then on, for how long in ms; and of a grant that is not written down: token, age in us.
-- Answer: 1 it is kept, 0 it was not held.

local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then
  return holder == ARGV[2] and 1 or 0
end
local rest = ARGV[3]
local before = redis.call('PTTL', KEYS[1])
redis.call('SET', KEYS[1], ARGV[2], 'PX', rest)
if ARGV[4] then
  local time = redis.call('TIME')
  local since = string.format('%.0f', time[1] * 1000000 + time[2] - ARGV[5])
  redis.call('SET', KEYS[2], ARGV[4] .. ' ' .. since .. ' ' .. ARGV[1], 'PX', rest)
else
  redis.call('PEXPIRE', KEYS[2], rest)
end
if KEYS[4] then
  redis.call('PEXPIRE', KEYS[4], rest)
end
if before < 0 or tonumber(rest) < before then
  -- The client of the first in line looks when the lease is over, of which it was told. It is kept all the same if
  -- nobody can be told: then each looks within a second.
  local first = redis.pcall('ZRANGE', KEYS[3], 0, 0)[1]
  local client = first and string.match(first, '^[^%s{]+')
  if client then
    redis.pcall('PUBLISH', 'oarlock-client:' .. client, 'kept ' .. rest)
  end
end
return 1
