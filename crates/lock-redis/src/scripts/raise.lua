-- Has the next grant's token above this one.
-- Keys: grant. Arguments: the token. Answer: 1.

local before = redis.call('GET', KEYS[1])
local last, rest = string.match(before or '', '^(%d+)( .*)$')
local at = now()
if is_below(last or '0', ARGV[1]) then
  redis.call('SET', KEYS[1], ARGV[1] .. (rest or ' ' .. at .. ' -'), 'PX', keep_token(ARGV[1], '0', at))
end
return 1
