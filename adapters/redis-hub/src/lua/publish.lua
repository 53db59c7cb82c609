-- KEYS: state, history, token. ARGV: channel, nonce, seen incarnation, seen sequence, lifetime, lifetime
-- of the token, time of the event, kind, payload, events that the history keeps.
-- The token is looked at first and written last: whoever finds it finds an event that is in.

-- Keeps a message for those who come back later than any buffer reaches. Its ID is its sequence, so a
-- reader finds the event after its own and sees every hole. What is there and does not go on with this
-- sequence is of a state that was lost: it is begun anew. A key of another type is left alone.
local function keep(history, sequence, message, events_max, ttl_ms)
    if tonumber(events_max) == 0 then
        return
    end
    local kind = redis.call('TYPE', history).ok
    if kind ~= 'stream' and kind ~= 'none' then
        return
    end
    local id = sequence .. '-0'
    local last = redis.call('XREVRANGE', history, '+', '-', 'COUNT', '1')[1]
    if kind == 'stream' and (not last or last[1] ~= string.format('%.0f', tonumber(sequence) - 1) .. '-0') then
        redis.call('DEL', history)
    end
    redis.call('XADD', history, 'MAXLEN', events_max, id, 'm', message)
    redis.call('PEXPIRE', history, ttl_ms)
end

local before = redis.call('GET', KEYS[3])
if before then
    local incarnation, sequence = before:match('^(%x+) (%d+)$')
    return { 'repeated', incarnation, sequence }
end
local incarnation, sequence = standing(KEYS[1], KEYS[2], ARGV[2], ARGV[3], ARGV[4], ARGV[5])
if not incarnation then
    return { 'unreadable' }
end
local text = string.format('%.0f', sequence + 1)
redis.call('HSET', KEYS[1], 'sequence', text)
local head = 'e ' .. incarnation .. ' ' .. text .. ' ' .. ARGV[7] .. ' ' .. #ARGV[8] .. ' '
local message = head .. ARGV[8] .. ARGV[9]
keep(KEYS[2], text, message, ARGV[10], ARGV[5])
redis.call(PUBLISH, ARGV[1], message)
redis.call('SET', KEYS[3], incarnation .. ' ' .. text, 'PX', ARGV[6])
return { 'accepted', incarnation, text }
