-- Takes a lock beside others, or enters its line.
-- Keys: lock, line, tokens; and to show that the client lives: its own key.
-- Arguments: owner, lease in ms, "s" or "p", how many permits, of how many; and to wait: place in line; and with the client's
-- key: for how long it lives unheard of, in ms.
-- Answer: {1, token, slots} granted; {1, token, slots, remaining ms} it was; {0, ms until the next lease is over, server's
-- time in us} not; {2, what the lock's key says} it is of another kind.

local lock, line, tokens = KEYS[1], KEYS[2], KEYS[3]
local owner, lease, mode, take, of = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local place = ARGV[6]

local time = now()
local kind, number = settle(lock, line, time)

-- What it has already.
local function had()
  if kind ~= mode then
    return nil
  end
  local hold = redis.call('HGET', companion(line, 'modes'), owner)
  local token, slots = string.match(hold or '', '^(%d+) %d+ (%S+)$')
  if not token then
    return nil
  end
  local ends = redis.call('ZSCORE', companion(line, 'holders'), owner)
  return {1, token, slots, math.floor((ends - time) / 1000)}
end

local answer = had()
if answer then
  return answer
end
if KEYS[4] then
  redis.call('SET', KEYS[4], '', 'PX', ARGV[7])
end
local waits = redis.call('EXISTS', line) == 1
if waits and kind ~= 'x' then
  serve_modes(lock, tokens, line, nil, number)
  kind, number = settle(lock, line, time)
  answer = had()
  if answer then
    return answer
  end
  waits = redis.call('EXISTS', line) == 1
end
local is_lock, wants_lock = kind == 's' or kind == 'x', mode == 's'
local is_another = kind and (is_lock ~= wants_lock or kind == 'p' and number ~= of)
if is_another and not (waits and place and redis.call('ZSCORE', line, place)) then
  return {2, redis.call('GET', lock)}
end
if not kind or kind == mode and not waits then
  local token, slots = join(lock, line, tokens, mode, take, of, lease, owner, time)
  if token then
    return {1, token, slots}
  end
end
if place then
  redis.call('ZADD', line, 'NX', time, place)
  if not waits then
    -- While anybody waits, looks prolong it.
    redis.pcall('PEXPIRE', line, DAY)
  end
end
return {0, kind == 'x' and redis.call('PTTL', lock) or next_end(line, time), time}
