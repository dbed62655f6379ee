-- Changes how many permits a semaphore has that is in use.
-- Keys: lock, line, tokens. Arguments: how many.
-- Answer: {1} it has so many; {0} it is not in use; {2, what the lock's key says} it is a lock; {3, so many} somebody waits for.

local lock, line, tokens = KEYS[1], KEYS[2], KEYS[3]
local permits = tonumber(ARGV[1])
local kind, of = settle(lock, line, now())
if not kind then
  serve_modes(lock, tokens, line, nil, of)
  kind = settle(lock, line, now())
end
if not kind then
  return {0}
end
if kind ~= 'p' then
  return {2, redis.call('GET', lock)}
end
local most = 0
for _, place in ipairs(redis.call('ZRANGE', line, 0, -1)) do
  local client, _, take = string.match(place, PLACE)
  if client and redis.call('EXISTS', 'oarlock-client:' .. client) == 1 then
    most = math.max(most, tonumber(take))
  end
end
if most > permits then
  return {3, most}
end
end_with_the_last(lock, 'permits#' .. ARGV[1], companion(line, 'holders'), companion(line, 'modes'), now())
pcall(serve_modes, lock, tokens, line)
return {1}
