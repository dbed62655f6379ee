-- Who holds each lock, and some of those who wait.
-- Keys: lock, grant, line of each. Arguments: from which place in line on, and how many places; none: no line is read.
-- Answer: server's time in us; then for each {holder or '', remaining ms, its grant or '', those places whose clients
-- live, how many places were read, what the holder shows or ''}.

local time = redis.call('TIME')
local answer = {string.format('%.0f', time[1] * 1000000 + time[2])}
local from, count = tonumber(ARGV[1]), tonumber(ARGV[2])
local lives = {}
for at = 1, #KEYS, 3 do
  local waiting, read = {}, 0
  if count > 0 then
    for _, place in ipairs(redis.call('ZRANGE', KEYS[at + 2], from, from + count - 1)) do
      local client = string.match(place, '^%S+') or ''
      if lives[client] == nil then
        lives[client] = redis.call('EXISTS', 'oarlock-client:' .. client) == 1
      end
      if lives[client] then
        table.insert(waiting, place)
      end
      read = read + 1
    end
  end
  local holder, value = redis.call('GET', KEYS[at]) or '', ''
  if holder ~= '' then
    -- Also of one that has gone, under the name that it had.
    local owner = redis.sha1hex((string.gsub(holder, '^kept#', '')))
    value = redis.call('GET', string.gsub(KEYS[at + 1], 'grant', 'value', 1) .. ':' .. owner) or ''
  end
  local remaining, grant = redis.call('PTTL', KEYS[at]), redis.call('GET', KEYS[at + 1]) or ''
  table.insert(answer, {holder, remaining, grant, waiting, read, value})
end
return answer
