-- Stands in front of release.lua and what that needs: where nobody waits, this is all.

local holder, first = redis.call('GET', KEYS[1]), nil
if KEYS[5] then
  redis.call('DEL', KEYS[5])
end
if holder == ARGV[1] then
  -- A line of another type is no line.
  first = redis.pcall('ZPOPMIN', KEYS[3])[1]
  if not first then
    redis.call('DEL', KEYS[1], KEYS[2])
    return 1
  end
end
