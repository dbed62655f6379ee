-- Stands before every script, which finds nothing of it in its KEYS and ARGV.
-- KEYS: those of the script, then the marks.
-- ARGV: those of the script, then how many marks there are, below zero for a reader, then the token.
-- Answers an error of code OARLOCKSTALE with the mark if that is higher, and of code OARLOCKMARK with the key of what
-- is no mark.
-- Tokens and marks have 20 digits each, so the order of the texts is that of the numbers: Lua counts exactly up to
-- 2^53 alone.
do
    local keys, last = #KEYS, #ARGV
    local token, count = ARGV[last], ARGV[last - 1]
    ARGV[last], ARGV[last - 1] = nil, nil
    -- Most writes are not a holder's first: then there is nothing to compare.
    if count == '1' and redis.call('GET', KEYS[keys]) == token then
        KEYS[keys] = nil
    else
        local lower = {}
        for at = keys, keys - math.abs(count) + 1, -1 do
            local key = KEYS[at]
            KEYS[at] = nil
            local mark = redis.call('GET', key)
            if mark and (#mark ~= 20 or mark:find('%D')) then return redis.error_reply('OARLOCKMARK ' .. key) end
            if mark and mark > token then return redis.error_reply('OARLOCKSTALE ' .. mark) end
            if mark ~= token then lower[#lower + 1] = key end
        end
        if tonumber(count) > 0 then
            for _, key in ipairs(lower) do redis.call('SET', key, token) end
        end
    end
end
