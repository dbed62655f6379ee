-- Takes a lock, or enters its line.
-- Keys: lock, grant, line; and to show that the client lives: its own key.
-- Arguments: owner, lease in ms; and to wait: place in line; and with the client's key: for how long it lives unheard
-- of, in ms.
-- Answer: {1, token} granted; {0, the holder's remaining ms, server's time in us} not. An error leaves no new place in
-- line: whoever is told that nothing was done does not leave it.

local owner, lease = ARGV[1], ARGV[2]
local present = redis.call('EXISTS', KEYS[1], KEYS[3])
if present == 0 then
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
end
if not holder then
  local served = serve(KEYS[1], KEYS[2], KEYS[3])
  if served == owner then
    return {1, string.match(redis.call('GET', KEYS[2]), '^%d+')}
  elseif not served then
    return {1, give(KEYS[1], KEYS[2], owner, lease, time)}
  end
end
local answer = {0, redis.call('PTTL', KEYS[1]), time}
if ARGV[3] then
  redis.call('ZADD', KEYS[3], 'NX', time, ARGV[3])
  if present == 1 then
    -- The line may be new. While anybody waits, looks prolong it.
    redis.pcall('PEXPIRE', KEYS[3], DAY)
  end
end
return answer
