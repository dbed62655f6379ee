-- Set in front of every script that grants.
-- A lock is `lock`, a plain string, the owner; `line`, a sorted set of "client lease owner" by the server's time of
-- arrival; and `grant`, "token since owner", which is written down of most that is held for longer than a moment, and
-- kept as long as the lease. A value that an owner shows is a key of its own, see values.rs. `tokens` is the last token of all locks of a database, in a cluster of those in one slot.
-- A number costs much to hand to a call, so what is handed on stays text.

local DAY = '86400000'

-- In modes.lua.
local serve, serve_modes

-- In microseconds, sixteen digits.
local function now()
  local time = redis.call('TIME')
  return time[1] .. string.sub('00000' .. time[2], -6)
end

-- Is this token below that? Numbers of up to 17 digits, of which Lua knows 15.
local function is_below(one, other)
  return #one < #other or #one == #other and one < other
end

-- The next token: the server's time in microseconds, or one more than the last where that is ahead of it. A Lua number is
-- exact up to 2^53; beyond it only Redis itself can count. Each call costs, so the last comes with the next one's writing.
local function draw(tokens, at)
  local last = string.match(redis.call('SET', tokens, at, 'GET') or '', '^%d+$')
  if not last or is_below(last, at) then
    return at
  end
  redis.call('SET', tokens, last)
  redis.call('INCR', tokens)
  return redis.call('GET', tokens)
end

-- Gives a free lock to this owner, and answers the token. That is drawn first, so that an error leaves the lock free.
local function give(lock, tokens, owner, lease, at)
  local token = draw(tokens, at)
  redis.call('SET', lock, owner, 'PX', lease)
  return token
end

-- Gives a lock that nobody has any more to the first in line whose client lives: it was heard of in the last seconds, and
-- listens. The others lose their place. Answers the owner who has it now and the token, or nil, and the lock is free.
-- `first` has already been taken out of the line.
serve = function(lock, tokens, line, first)
  local gone
  first = first or redis.call('ZPOPMIN', line)[1]
  while first do
    local client, lease, owner = string.match(first, '^(%S+) (%d+) (.*)$')
    if not client and string.find(first, '^%S+ %l%d+/%d+:%d+ ') then
      redis.call('DEL', lock)
      return serve_modes(lock, tokens, line, first)
    end
    -- Of one client that died, thousands may stand in line.
    if client and not (gone and gone[client]) then
      if redis.call('EXISTS', 'oarlock-client:' .. client) == 1 then
        local at = now()
        local token = give(lock, tokens, owner, lease, at)
        -- In a cluster, the client's key has the slot behind its name, and its channel has not.
        local channel = 'oarlock-client:' .. string.match(client, '^[^{]*')
        if redis.call('PUBLISH', channel, token .. ' ' .. at .. ' ' .. owner) > 0 then
          return owner, token
        end
      end
      gone = gone or {}
      gone[client] = true
    end
    first = redis.call('ZPOPMIN', line)[1]
  end
  redis.call('DEL', lock)
end
