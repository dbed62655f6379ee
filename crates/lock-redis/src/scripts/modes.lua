-- Behind common.lua: locks that several hold at a time.
-- Then `lock` is "shared#" or "permits#N", for as long as the longest of their leases; `holders` is a sorted set of their
-- owners by the ends of their leases, in us, and `modes` a hash of "token since slots" of each, the slots of a semaphore
-- with commas between, or "-". Without such a `lock`, the other two mean nothing.
-- Who waits so has a place "client mode:lease owner", and the mode is "s1/1" or "pTAKE/OF".

local PLACE = '^(%S+) (%l)(%d+)/(%d+):(%d+) (.*)$'

local function companion(line, kind)
  return (string.gsub(line, 'line', kind, 1))
end

-- "s", "p" and the number of permits, "x" if it is one's alone, or nil.
local function kind_of(holder)
  local of = holder and string.match(holder, '^permits#(%d+)$')
  if of then
    return 'p', tonumber(of)
  end
  return holder and (holder == 'shared#' and 's' or 'x') or nil
end

-- The lock's kind, after those are taken out whose leases are over. Of a semaphore that nobody holds any more: nil, and how
-- many permits it had.
local function settle(lock, line, time)
  local kind, of = kind_of(redis.call('GET', lock))
  if kind == 'x' or not kind then
    return kind
  end
  local holders = companion(line, 'holders')
  for _, owner in ipairs(redis.call('ZRANGEBYSCORE', holders, '-inf', time)) do
    redis.call('ZREM', holders, owner)
    redis.call('HDEL', companion(line, 'modes'), owner)
  end
  if redis.call('EXISTS', holders) == 0 then
    redis.call('DEL', lock)
    return nil, of
  end
  return kind, of
end

-- Has the lock end with the last lease.
local function end_with_the_last(lock, mark, holders, modes, time)
  local last = redis.call('ZREVRANGE', holders, 0, 0, 'WITHSCORES')[2]
  local left = string.format('%.0f', math.ceil((last - time) / 1000) + 1)
  redis.call('SET', lock, mark, 'PX', left)
  redis.call('PEXPIRE', holders, left)
  redis.call('PEXPIRE', modes, left)
end

-- In how many ms the next lease is over.
local function next_end(line, time)
  local first = redis.call('ZRANGE', companion(line, 'holders'), 0, 0, 'WITHSCORES')[2]
  return first and math.ceil((first - time) / 1000) or 0
end

-- The lowest slots that are free, as many as are to be taken; or nil.
local function free_slots(modes, take, of)
  local taken, used = {}, 0
  for _, hold in ipairs(redis.call('HVALS', modes)) do
    for slot in string.gmatch(string.match(hold, '%S*$'), '%d+') do
      taken[slot], used = true, used + 1
    end
  end
  if used + take > of then
    return nil
  end
  local free = {}
  for slot = 0, of - 1 do
    if #free < take and not taken[tostring(slot)] then
      table.insert(free, slot)
    end
  end
  return table.concat(free, ',')
end

-- Grants a lock that is free, or of this kind. Answers token and slots, or nil if there are not enough.
local function join(lock, line, tokens, mode, take, of, lease, owner, time)
  local holders, modes = companion(line, 'holders'), companion(line, 'modes')
  if redis.call('EXISTS', lock) == 0 then
    redis.call('DEL', holders, modes)
  end
  local slots = '-'
  if mode == 'p' then
    slots = free_slots(modes, take, of)
    if not slots then
      return nil
    end
  end
  local token = draw(tokens, time)
  redis.call('ZADD', holders, string.format('%.0f', time + lease * 1000), owner)
  redis.call('HSET', modes, owner, token .. ' ' .. time .. ' ' .. slots)
  end_with_the_last(lock, mode == 's' and 'shared#' or 'permits#' .. of, holders, modes, time)
  return token, slots
end

-- Ends one of several holds, and answers whether it was one. The lock has to be settled.
local function leave(lock, line, owner, time)
  local holders, modes = companion(line, 'holders'), companion(line, 'modes')
  local held = redis.call('ZREM', holders, owner)
  redis.call('HDEL', modes, owner)
  if held == 1 and redis.call('EXISTS', holders) == 0 then
    redis.call('DEL', lock)
  elseif held == 1 then
    end_with_the_last(lock, redis.call('GET', lock), holders, modes, time)
  end
  return held
end

-- Grants the lock to those at the head of the line who can have it, one beside the other, and whose clients live. `first`
-- was taken out of the line, and the lock is free; `before` is how many permits it had. Nil: it is free.
serve_modes = function(lock, tokens, line, first, before)
  local gone = {}
  while true do
    local time = now()
    local kind, of = settle(lock, line, time)
    local place = first or redis.call('ZRANGE', line, 0, 0)[1]
    if kind == 'x' or not place then
      break
    end
    local client, mode, take, most, lease, owner = string.match(place, PLACE)
    if not client and not kind then
      -- Who wants it alone, or what is no place at all.
      redis.call('ZREM', line, place)
      return serve(lock, tokens, line, place)
    end
    -- Who wants it alone has to wait, but keeps nobody waiting once it is dead.
    local alone = not client
    client = client or string.match(place, '^%S+') or ''
    local lives = not gone[client] and redis.call('EXISTS', 'oarlock-client:' .. client) == 1
    if lives and alone then
      break
    end
    if lives then
      before = of or before or tonumber(most)
      if kind and kind ~= mode then
        break
      end
      local token = join(lock, line, tokens, mode, tonumber(take), before, lease, owner, time)
      if not token then
        break
      end
      local channel = 'oarlock-client:' .. string.match(client, '^[^{]*')
      if redis.call('PUBLISH', channel, token .. ' ' .. time .. ' ' .. owner) == 0 then
        leave(lock, line, owner, time)
        lives = false
      end
    end
    gone[client] = not lives
    if not first then
      redis.call('ZREM', line, place)
    end
    first = nil
  end
  return redis.call('EXISTS', lock) == 1 or nil
end
