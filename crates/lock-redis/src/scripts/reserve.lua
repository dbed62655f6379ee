-- Reserves a stretch of the line of a rate limiter.
-- Keys: until when the line is taken, by the server's clock in us; it goes when that has passed.
-- Arguments, in us: the length of the stretch, how much of it has to be over first, how long that may be from now on.
-- Answer: 1 if it was reserved or else 0, and how long it is until whoever asked goes on, in us.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local length, ahead, within = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local begins = math.max(tonumber(redis.call('GET', KEYS[1]) or '') or 0, now)
local wait = begins - now + ahead
if wait > within then
  return {0, wait}
end
local left = math.ceil((begins + length - now) / 1000) + 1
redis.call('SET', KEYS[1], string.format('%.0f', begins + length), 'PX', string.format('%.0f', left))
return {1, wait}
