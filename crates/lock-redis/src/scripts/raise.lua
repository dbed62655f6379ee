-- Has the next token above this one.
-- Keys: tokens. Arguments: the token. Answer: 1.

local last = string.match(redis.call('GET', KEYS[1]) or '', '^%d+$')
if is_below(last or '0', ARGV[1]) then
  redis.call('SET', KEYS[1], ARGV[1])
end
return 1
