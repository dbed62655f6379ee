-- Ends a hold and gives the lock to the next in line; or leaves the line.
-- Keys: lock, grant, line, tokens; and of a claim with a value: its key. Arguments: owner, place in line. Answer: 1 it was held, 0 it was not.

if holder ~= ARGV[1] then
  redis.call('ZREM', KEYS[3], ARGV[2])
  local kind = kind_of(holder)
  if kind and kind ~= 'x' then
    -- Those behind it may have waited for it alone.
    pcall(serve_modes, KEYS[1], KEYS[4], KEYS[3])
  end
end
if first or not holder then
  -- Free it is in any case. If nobody can be served, the waiters look within a second.
  if not pcall(serve, KEYS[1], KEYS[4], KEYS[3], first) then
    redis.call('DEL', KEYS[1])
  end
end
return first and 1 or 0
