-- Ends one of several holds and serves the line; or leaves the line.
-- Keys: lock, line, tokens. Arguments: owner, place in line. Answer: 1 it was held, 0 it was not.

local lock, line, tokens = KEYS[1], KEYS[2], KEYS[3]
local time = now()
local kind, of = settle(lock, line, time)
local held = 0
if kind and kind ~= 'x' then
  held = leave(lock, line, ARGV[1], time)
end
if held == 0 then
  redis.call('ZREM', line, ARGV[2])
end
if kind ~= 'x' then
  -- If nobody can be served, the waiters look within a second.
  pcall(serve_modes, lock, tokens, line, nil, of)
end
return held
