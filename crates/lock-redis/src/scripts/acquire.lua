-- Takes a lock, or enters its line.
-- Keys: lock, grant, line, tokens; and to show that the client lives: its own key.
-- Arguments: owner, lease in ms, 1 if the owner may have the lock's key by a flight and that is no grant unless it is written
-- down or else 0; and to wait: place in line; and with the client's key: for how long it lives unheard of, in ms.
-- Answer: {1, token} granted; {1, token, remaining ms} it was; {0, the holder's remaining ms, server's time in us} not; {2,
-- what the lock's key says} it is a semaphore. An error leaves no new place in line: whoever is told that nothing was done does not leave it.

local owner, lease = ARGV[1], ARGV[2]

local function granted(token, at)
  redis.call('SET', KEYS[2], token .. ' ' .. at .. ' ' .. owner, 'PX', lease)
  return {1, token}
end

local time = now()
local present = redis.call('EXISTS', KEYS[1], KEYS[3])
if present == 0 then
  return granted(give(KEYS[1], KEYS[4], owner, lease, time), time)
end
local holder = redis.call('GET', KEYS[1])
if holder == owner then
  local token, of = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+) %d+ (.*)$')
  if of == owner or ARGV[3] == '0' then
    -- A repeated request prolongs nothing: the lease is what is left of it.
    local left = redis.call('PTTL', KEYS[1])
    if of ~= owner then
      token = draw(KEYS[4], time)
      granted(token, time)
    end
    return {1, token, left}
  end
end
if KEYS[5] then
  redis.call('SET', KEYS[5], '', 'PX', ARGV[5])
end
if not holder or holder == owner then
  local served, token = serve(KEYS[1], KEYS[4], KEYS[3])
  if not served then
    served, token = owner, give(KEYS[1], KEYS[4], owner, lease, time)
  end
  if served == owner then
    return granted(token, time)
  end
  holder = redis.call('GET', KEYS[1])
end
if kind_of(holder) == 'p' then
  return {2, holder}
end
local answer = {0, redis.call('PTTL', KEYS[1]), time}
if ARGV[4] then
  redis.call('ZADD', KEYS[3], 'NX', time, ARGV[4])
  if present == 1 then
    -- The line may be new. While anybody waits, looks prolong it.
    redis.pcall('PEXPIRE', KEYS[3], DAY)
  end
end
return answer
