-- Who holds each lock, and who waits.
-- Keys: lock, grant, line of each.
-- Answer: server's time in us; then for each {holder or '', remaining ms, its grant or '', places in line of living clients}.

local time = redis.call('TIME')
local answer = {string.format('%.0f', time[1] * 1000000 + time[2])}
local lives = {}
for at = 1, #KEYS, 3 do
  local waiting = {}
  for _, place in ipairs(redis.call('ZRANGE', KEYS[at + 2], 0, -1)) do
    local client = string.match(place, '^%S+') or ''
    if lives[client] == nil then
      lives[client] = redis.call('EXISTS', 'oarlock-client:' .. client) == 1
    end
    if lives[client] then
      table.insert(waiting, place)
    end
  end
  local holder = redis.call('GET', KEYS[at]) or ''
  table.insert(answer, {holder, redis.call('PTTL', KEYS[at]), redis.call('GET', KEYS[at + 1]) or '', waiting})
end
return answer
