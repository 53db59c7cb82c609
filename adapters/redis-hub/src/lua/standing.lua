-- Reads a topic's state, or makes the next incarnation where there is none, where it cannot be read or
-- goes on no longer, or where it lies behind what a caller has seen of it (a copy that was put back).
-- Identity and sequence are fields of one hash: they vanish together. The history is of one incarnation:
-- the next begins another.
-- A state that another server wrote was carried here, by a promotion, a disk or a move: it is what that one
-- gave out up to some point, and may lack the end. It goes on as the next incarnation, at the same sequence,
-- and says how far the one before was carried: what was lost above is never taken for what comes now.
local SEQUENCE_MAX = 9007199254740990

-- The history of writes that this server is in: another one after every restart and every promotion.
local function lineage()
    local id = redis.call('INFO', 'replication'):match('master_replid:(%x+)')
    return id or error('expected master_replid in INFO replication, found none')
end

local function following(nonce, ...)
    local counter = 0
    for _, known in ipairs({ ... }) do
        if #known == 24 then
            counter = math.max(counter, tonumber(known:sub(1, 8), 16))
        end
    end
    return string.format('%08x', counter >= 4294967295 and 1 or counter + 1) .. nonce
end

-- Answers incarnation, sequence, and of a state that was carried here the incarnation before and its end.
local function standing(key, history, nonce, seen_incarnation, seen_sequence, ttl_ms)
    local kind = redis.call('TYPE', key).ok
    if kind ~= 'hash' and kind ~= 'none' then
        return nil
    end
    local here = lineage()
    local found = redis.call('HMGET', key, 'incarnation', 'sequence', 'lineage', 'before', 'carried')
    local incarnation, text, before, carried = found[1], found[2], found[4], found[5]
    local whole = incarnation and text and found[3] and #incarnation == 24 and #text <= 16
        and incarnation:match('^[0-9a-f]+$') and text:match('^[0-9]+$')
    local sequence = whole and tonumber(text) or 0
    local elsewhere = found[3] ~= here
    if not whole or sequence >= SEQUENCE_MAX
        or not elsewhere and incarnation == seen_incarnation and sequence < tonumber(seen_sequence) then
        incarnation = following(nonce, whole and incarnation or '', seen_incarnation)
        sequence, before, carried = 0, false, false
        redis.call('DEL', key)
        redis.call('HSET', key, 'incarnation', incarnation, 'sequence', '0', 'lineage', here)
        if redis.call('TYPE', history).ok == 'stream' then
            redis.call('DEL', history)
        end
    elseif elsewhere then
        before, carried = incarnation, text
        incarnation = following(nonce, before, seen_incarnation)
        redis.call('HSET', key, 'incarnation', incarnation, 'lineage', here, 'before', before, 'carried', carried)
    end
    redis.call('PEXPIRE', key, ttl_ms)
    if redis.call('TYPE', history).ok == 'stream' then
        redis.call('PEXPIRE', history, ttl_ms)
    end
    return incarnation, sequence, before, carried
end
