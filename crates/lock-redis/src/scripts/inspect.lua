-- Who holds each lock, and some of those who wait.
-- Keys: lock, grant, line of each. Arguments: from which place in line on, and how many places; none: no line is read.
-- Answer: server's time in us; then for each {holder or '', remaining ms, its grant or '', those places whose clients
-- live, how many places were read, what the holder shows or '', and of those who hold it together, or where no line is
-- read of one of them: owner, remaining ms and "token since slots" of each}.

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
  local together = {}
  if holder == 'shared#' or string.find(holder, '^permits#%d+$') then
    local holders, modes = string.gsub(KEYS[at + 2], 'line', 'holders', 1), string.gsub(KEYS[at + 2], 'line', 'modes', 1)
    local now = time[1] * 1000000 + time[2]
    local limit = count > 0 and -1 or 1
    local range = redis.call('ZRANGEBYSCORE', holders, '(' .. answer[1], '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
    for one = 1, #range, 2 do
      table.insert(together, range[one])
      table.insert(together, string.format('%.0f', (range[one + 1] - now) / 1000))
      table.insert(together, redis.call('HGET', modes, range[one]) or '')
    end
  end
  local remaining, grant = redis.call('PTTL', KEYS[at]), redis.call('GET', KEYS[at + 1]) or ''
  table.insert(answer, {holder, remaining, grant, waiting, read, value, together})
end
return answer
