-- Shows another value with a hold.
-- Keys: lock, the value's own. Arguments: owner, value, lease in ms. Answer: 1 it is shown, 0 it is not held.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return 1
