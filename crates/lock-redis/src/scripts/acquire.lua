-- Takes a lock, or enters its line.
-- Keys: lock, grant, line, and the client's own key if it is to wait.
-- Arguments: owner, lease in ms; and to wait: place in line, for how long the client lives unheard of, in ms.
-- Answer: {1, token} granted; {0, the holder's remaining ms, server's time in us} not.

local owner, lease = ARGV[1], ARGV[2]
if redis.call('EXISTS', KEYS[1], KEYS[3]) == 0 then
  return {1, give(KEYS[1], KEYS[2], owner, lease, now())}
end
local holder = redis.call('GET', KEYS[1])
if holder == owner then
  local token, of = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+) %d+ (.*)$')
  -- A repeated request prolongs nothing: the lease is what is left of it.
  if of == owner then
    return {1, token, redis.call('PTTL', KEYS[1])}
  end
  return {1, give(KEYS[1], KEYS[2], owner, lease, now())}
end
local time = now()
if KEYS[4] then
  redis.call('SET', KEYS[4], '', 'PX', ARGV[4])
  redis.call('ZADD', KEYS[3], 'NX', time, ARGV[3])
  redis.call('PEXPIRE', KEYS[3], KEEP)
end
if not holder then
  local served = serve(KEYS[1], KEYS[2], KEYS[3])
  if served == owner then
    return {1, string.match(redis.call('GET', KEYS[2]), '^%d+')}
  elseif not served then
    return {1, give(KEYS[1], KEYS[2], owner, lease, time)}
  end
end
return {0, redis.call('PTTL', KEYS[1]), string.format('%.0f', time)}
