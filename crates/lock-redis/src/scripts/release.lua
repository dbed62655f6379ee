-- Ends a hold and gives the lock to the next in line; or leaves the line.
-- Keys: lock, grant, line. Arguments: owner, place in line. Answer: 1 it was held, 0 it was not.

local holder = redis.call('GET', KEYS[1])
local held = holder == ARGV[1]
if not held then
  redis.call('ZREM', KEYS[3], ARGV[2])
end
if held or not holder then
  -- Free it is in any case. If nobody can be served, the waiters look within a second.
  if not pcall(serve, KEYS[1], KEYS[2], KEYS[3]) then
    redis.call('DEL', KEYS[1])
  end
end
return held and 1 or 0
