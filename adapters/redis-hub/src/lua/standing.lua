-- Reads a topic's state, or makes the next incarnation where there is none, where it cannot be read or
-- goes on no longer, or where it lies behind what a caller has seen of it (a copy that was put back).
-- Identity and sequence are fields of one hash: they vanish together. The history is of one incarnation:
-- the next begins another.
local SEQUENCE_MAX = 9007199254740990
local function standing(key, history, nonce, seen_incarnation, seen_sequence, ttl_ms)
    local kind = redis.call('TYPE', key).ok
    if kind ~= 'hash' and kind ~= 'none' then
        return nil
    end
    local found = redis.call('HMGET', key, 'incarnation', 'sequence')
    local incarnation, text = found[1], found[2]
    local whole = incarnation and text and #incarnation == 24 and #text <= 16
        and incarnation:match('^[0-9a-f]+$') and text:match('^[0-9]+$')
    local sequence = whole and tonumber(text) or 0
    local spent = not whole or sequence >= SEQUENCE_MAX
        or (incarnation == seen_incarnation and sequence < tonumber(seen_sequence))
    if spent then
        local counter = 0
        for _, known in ipairs({ whole and incarnation or '', seen_incarnation }) do
            if #known == 24 then
                counter = math.max(counter, tonumber(known:sub(1, 8), 16))
            end
        end
        counter = counter >= 4294967295 and 1 or counter + 1
        incarnation, sequence = string.format('%08x', counter) .. nonce, 0
        redis.call('DEL', key)
        redis.call('HSET', key, 'incarnation', incarnation, 'sequence', '0')
        if redis.call('TYPE', history).ok == 'stream' then
            redis.call('DEL', history)
        end
    end
    redis.call('PEXPIRE', key, ttl_ms)
    if redis.call('TYPE', history).ok == 'stream' then
        redis.call('PEXPIRE', history, ttl_ms)
    end
    return incarnation, sequence
end
