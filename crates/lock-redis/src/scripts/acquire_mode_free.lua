-- Between common.lua and modes.lua, in front of acquire_mode.lua, whose keys and arguments these are: where nobody has the
-- lock or waits, and nothing is left of who had it, this is all. Each call costs.

local holders, modes = string.gsub(KEYS[2], 'line', 'holders', 1), string.gsub(KEYS[2], 'line', 'modes', 1)
local is_shared, take = ARGV[3] == 's', tonumber(ARGV[4])
if (is_shared or take <= tonumber(ARGV[5])) and redis.call('EXISTS', KEYS[1], KEYS[2], holders, modes) == 0 then
  local slots = '-'
  if not is_shared then
    local first = {}
    for slot = 0, take - 1 do
      table.insert(first, slot)
    end
    slots = table.concat(first, ',')
  end
  local time = now()
  local token = draw(KEYS[3], time)
  -- The lease is over first: as in `end_with_the_last`.
  local left = string.format('%.0f', ARGV[2] + 1)
  redis.call('SET', KEYS[1], is_shared and 'shared#' or 'permits#' .. ARGV[5], 'PX', left)
  redis.call('ZADD', holders, string.format('%.0f', time + ARGV[2] * 1000), ARGV[1])
  redis.call('PEXPIRE', holders, left)
  redis.call('HSET', modes, ARGV[1], token .. ' ' .. time .. ' ' .. slots)
  redis.call('PEXPIRE', modes, left)
  return {1, token, slots}
end

