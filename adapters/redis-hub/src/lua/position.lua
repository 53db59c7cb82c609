-- KEYS: state, history. ARGV: channel, nonce, seen incarnation, seen sequence, lifetime.
-- What was given out is answered and published, so that every instance hears it in the channel's order.
local incarnation, sequence = standing(KEYS[1], KEYS[2], ARGV[2], ARGV[3], ARGV[4], ARGV[5])
if not incarnation then
    return { 'unreadable' }
end
local text = string.format('%.0f', sequence)
redis.call(PUBLISH, ARGV[1], 'p ' .. incarnation .. ' ' .. text)
return { 'at', incarnation, text }
