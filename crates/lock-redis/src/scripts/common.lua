-- Set in front of every script that grants.
-- A lock is three keys: `lock`, a plain string, the owner; `grant`, "token since owner", its last grant, kept for most of
-- a day longer than the lease; `line`, a sorted set of "client lease owner" by the server's time of arrival.
-- A number costs much to hand to a call, so what is handed on stays text.

local DAY = '86400000'

-- In microseconds, sixteen digits.
local function now()
  local time = redis.call('TIME')
  return time[1] .. string.sub('00000' .. time[2], -6)
end

-- For how long to keep the grant of a lease: a day longer, but of one below three hours a day in all.
local function keep(lease)
  return #lease < 8 and DAY or string.format('%.0f', lease + DAY)
end

-- The same for a token ahead of the clock: until the clock has passed it, too.
local function keep_token(token, lease, at)
  return string.format('%.0f', math.max((token - at) / 1000, 0) + keep(lease))
end

-- Is this token below that? Numbers of up to 17 digits, of which Lua knows 15.
local function is_below(one, other)
  return #one < #other or #one == #other and one < other
end

-- Gives a free lock to this owner. The grant is written first, so that an error leaves the lock free.
-- The token is the server's time in microseconds, or one more than the last where that is ahead of it. A Lua number is
-- exact up to 2^53; beyond it only Redis itself can count. Each call costs, so the old grant comes with the new one's writing.
local function give(lock, grant, owner, lease, at)
  local token = at
  local before = redis.call('SET', grant, at .. ' ' .. at .. ' ' .. owner, 'PX', keep(lease), 'GET')
  local last = before and string.match(before, '^%d+')
  if last and not is_below(last, at) then
    redis.call('SET', grant, last)
    redis.call('INCR', grant)
    token = redis.call('GET', grant)
    redis.call('SET', grant, token .. ' ' .. at .. ' ' .. owner, 'PX', keep_token(token, lease, at))
  end
  redis.call('SET', lock, owner, 'PX', lease)
  return token
end

-- Gives a lock that nobody has any more to the first in line whose client lives: it was heard of in the last seconds, and
-- listens. The others lose their place. Answers the owner who has it now, or nil, and the lock is free.
local function serve(lock, grant, line)
  local gone
  while true do
    local first = redis.call('ZPOPMIN', line)[1]
    if not first then
      redis.call('DEL', lock)
      return nil
    end
    local client, lease, owner = string.match(first, '^(%S+) (%d+) (.*)$')
    -- Of one client that died, thousands may stand in line.
    if client and not (gone and gone[client]) then
      if redis.call('EXISTS', 'oarlock-client:' .. client) == 1 then
        local at = now()
        local token = give(lock, grant, owner, lease, at)
        -- In a cluster, the client's key has the slot behind its name, and its channel has not.
        local channel = 'oarlock-client:' .. string.match(client, '^[^{]*')
        if redis.call('PUBLISH', channel, token .. ' ' .. at .. ' ' .. owner) > 0 then
          return owner
        end
      end
      gone = gone or {}
      gone[client] = true
    end
  end
end
