-- Ends a hold and gives the lock to the next in line; or leaves the line.
-- Keys: lock, grant, line. Arguments: owner, place in line. Answer: 1 it was held, 0 it was not.

local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  redis.call('DEL', KEYS[1])
  -- Free it is in any case. If nobody can be served, for want of memory, the waiters look within a second.
  pcall(serve, KEYS[1], KEYS[2], KEYS[3])
  return 1
end
redis.call('ZREM', KEYS[3], ARGV[2])
if not holder then
  pcall(serve, KEYS[1], KEYS[2], KEYS[3])
end
return 0
