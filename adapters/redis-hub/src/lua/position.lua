-- KEYS: state, history. ARGV: channel, nonce, seen incarnation, seen sequence, lifetime.
-- What was given out is answered and published, so that every instance hears it in the channel's order.
local incarnation, sequence, before, carried = standing(KEYS[1], KEYS[2], ARGV[2], ARGV[3], ARGV[4], ARGV[5])
if not incarnation then
    return { 'unreadable' }
end
local answer = { 'at', incarnation, string.format('%.0f', sequence) }
if before and carried then
    answer[4], answer[5] = before, carried
end
redis.call(PUBLISH, ARGV[1], 'p ' .. table.concat(answer, ' ', 2))
return answer
