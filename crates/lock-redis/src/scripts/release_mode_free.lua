-- Stands in front of release_mode.lua and what that needs, with its keys and arguments: where nobody else has the lock or
-- waits, this is all.

local mark = redis.call('GET', KEYS[1])
if mark == 'shared#' or mark and string.find(mark, '^permits#%d+$') then
  local holders = string.gsub(KEYS[2], 'line', 'holders', 1)
  local first = redis.call('ZRANGE', holders, 0, 1)
  if #first == 1 and first[1] == ARGV[1] and redis.call('EXISTS', KEYS[2]) == 0 then
    redis.call('DEL', KEYS[1], holders, (string.gsub(KEYS[2], 'line', 'modes', 1)))
    return 1
  end
end

