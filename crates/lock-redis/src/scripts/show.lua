-- Stands behind acquire.lua, as a function, for a claim with a value.
-- The last key is the value's own, and the last argument the value: acquire.lua knows of neither. Answer: as it says.
-- The value of who waits lasts for a day more than the lease. A waiter asks again before that, and renewals prolong it.

local key, value = table.remove(KEYS), table.remove(ARGV)
local answer = acquire()
if answer[1] == 1 and not answer[3] then
  redis.call('SET', key, value, 'PX', ARGV[2])
elseif answer[1] == 0 and ARGV[4] then
  redis.call('SET', key, value, 'PX', string.format('%.0f', DAY + ARGV[2]))
end
return answer
