-- What a client with waiters does each second: it shows that it lives, and serves locks that came free unheard.
-- Keys: the client's own key, tokens, then lock and line of each lock.
-- Arguments: for how long the client lives unheard of, in ms; then for each lock the place of one of its waiters.
-- Answer: {server's time in us, for each lock {holder or '', remaining ms, is that place in line?}}.

redis.call('SET', KEYS[1], '', 'PX', ARGV[1])
local answer = {}
for at = 1, #ARGV - 1 do
  local lock, line = KEYS[at * 2 + 1], KEYS[at * 2 + 2]
  -- A key of another type is one lock's trouble, not that of all.
  local function seen()
    local holder = redis.pcall('GET', lock)
    return type(holder) == 'string' and holder or ''
  end
  local holder = seen()
  local kind = kind_of(holder ~= '' and holder or nil)
  if redis.call('EXISTS', lock) == 0 then
    pcall(serve, lock, KEYS[2], line)
    holder = seen()
  elseif kind and kind ~= 'x' then
    pcall(serve_modes, lock, KEYS[2], line)
    holder = seen()
  end
  local place = redis.call('ZSCORE', line, ARGV[at + 1]) and 1 or 0
  redis.call('PEXPIRE', line, DAY)
  kind = kind_of(holder ~= '' and holder or nil)
  local left = (kind == 's' or kind == 'p') and next_end(line, now()) or redis.call('PTTL', lock)
  answer[at] = {holder, left, place}
end
return {now(), answer}
