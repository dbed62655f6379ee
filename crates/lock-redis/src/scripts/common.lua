-- Set in front of every script that grants.
-- A lock is three keys: `lock`, a plain string, the owner; `grant`, "token since owner", its last grant, kept for a day
-- longer than the lease; `line`, a sorted set of "client lease owner" by the server's time of arrival.

local KEEP = 86400000

local function now()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The next token: the server's time in microseconds, or one more than the last where that is ahead of it. A Lua number
-- is exact up to 2^53; beyond it only Redis itself can count.
local function next_token(grant, time)
  local last = redis.call('GET', grant)
  last = last and string.match(last, '^%d+')
  if not last or tonumber(last) < time then
    return string.format('%.0f', time)
  end
  redis.call('SET', grant, last)
  redis.call('INCR', grant)
  return redis.call('GET', grant)
end

-- Gives a free lock to this owner. The grant is written first, so that an error leaves the lock free.
local function give(lock, grant, owner, lease, time)
  local token = next_token(grant, time)
  redis.call('SET', grant, token .. ' ' .. string.format('%.0f', time) .. ' ' .. owner, 'PX', lease + KEEP)
  redis.call('SET', lock, owner, 'PX', lease)
  return token
end

-- Gives a free lock to the first in line whose client lives: it was heard of in the last seconds, and listens. The
-- others lose their place. Answers the owner who has it now, or nil.
local function serve(lock, grant, line)
  local given = false
  while true do
    local first = redis.call('ZRANGE', line, 0, 0)[1]
    if not first then
      break
    end
    local client, lease, owner = string.match(first, '^(%S+) (%d+) (.*)$')
    if client and redis.call('EXISTS', 'oarlock-client:' .. client) == 1 then
      local time = now()
      local token = give(lock, grant, owner, lease, time)
      given = true
      redis.call('ZREM', line, first)
      local message = token .. ' ' .. string.format('%.0f', time) .. ' ' .. owner
      if redis.call('PUBLISH', 'oarlock-client:' .. client, message) > 0 then
        return owner
      end
    else
      redis.call('ZREM', line, first)
    end
  end
  if given then
    redis.call('DEL', lock)
  end
  return nil
end

