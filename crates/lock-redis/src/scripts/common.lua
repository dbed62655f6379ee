-- Set in front of every script that grants.
-- A lock is three keys: `lock`, a plain string, the owner; `grant`, "token since owner", its last grant, kept for a day
-- longer than the lease; `line`, a sorted set of "client lease owner" by the server's time of arrival.

local KEEP = 86400000

local function now()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Gives a free lock to this owner. The grant is written first, so that an error leaves the lock free.
-- The token is the server's time in microseconds, or one more than the last where that is ahead of it. A Lua number is
-- exact up to 2^53; beyond it only Redis itself can count. Each call costs, so the old grant comes with the new one's writing.
local function give(lock, grant, owner, lease, time)
  local at = string.format('%.0f', time)
  local token = at
  local before = redis.call('SET', grant, at .. ' ' .. at .. ' ' .. owner, 'PX', lease + KEEP, 'GET')
  local last = before and string.match(before, '^%d+')
  if last and tonumber(last) >= time then
    redis.call('SET', grant, last)
    redis.call('INCR', grant)
    token = redis.call('GET', grant)
    redis.call('SET', grant, token .. ' ' .. at .. ' ' .. owner, 'PX', lease + KEEP)
  end
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
      -- In a cluster, the client's key has the slot behind its name, and its channel has not.
      if redis.call('PUBLISH', 'oarlock-client:' .. string.match(client, '^[^{]*'), message) > 0 then
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

