-- KEYS: state, token. ARGV: channel, nonce, seen incarnation, seen sequence, lifetime, lifetime of the
-- token, time of the event, kind, payload.
-- The token is looked at first and written last: whoever finds it finds an event that is in.
local before = redis.call('GET', KEYS[2])
if before then
    local incarnation, sequence = before:match('^(%x+) (%d+)$')
    return { 'repeated', incarnation, sequence }
end
local incarnation, sequence = standing(KEYS[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5])
if not incarnation then
    return { 'unreadable' }
end
local text = string.format('%.0f', sequence + 1)
redis.call('HSET', KEYS[1], 'sequence', text)
local head = 'e ' .. incarnation .. ' ' .. text .. ' ' .. ARGV[7] .. ' ' .. #ARGV[8] .. ' '
redis.call('PUBLISH', ARGV[1], head .. ARGV[8] .. ARGV[9])
redis.call('SET', KEYS[2], incarnation .. ' ' .. text, 'PX', ARGV[6])
return { 'accepted', incarnation, text }
