-- Reads a topic's state, or makes the next incarnation where there is none, where it cannot be read or goes on
-- no longer, where another server wrote it, or where it lacks what a caller has seen of it.
-- Identity and sequence are fields of one hash: they vanish together. The history is of one incarnation:
-- the next begins another.
-- A state that another server wrote came here by a promotion, a disk or a move, and may lack the last events
-- that were given out: nobody here can know which, so no cursor of it is good any more.
local SEQUENCE_MAX = 9007199254740990
local COUNTER_MAX = 4294967295

-- The history of writes that this server is in: another one after every restart and every promotion.
local function lineage()
    local id = redis.call('INFO', 'replication'):match('master_replid:(%x+)')
    return id or error('expected master_replid in INFO replication, found none')
end

local function counter_of(incarnation)
    return #incarnation == 24 and tonumber(incarnation:sub(1, 8), 16) or 0
end

local function following(nonce, incarnation, seen)
    local counter = math.max(counter_of(incarnation), counter_of(seen))
    return string.format('%08x', counter >= COUNTER_MAX and 1 or counter + 1) .. nonce
end

-- A caller has seen more: a copy was put back, or callers went on to another server and came back to this one.
-- The last counter is followed by the first, so it is above none: else each call would begin another.
local function behind(incarnation, sequence, seen, seen_sequence)
    if incarnation == seen then
        return sequence < tonumber(seen_sequence)
    end
    return counter_of(seen) > counter_of(incarnation) and counter_of(seen) < COUNTER_MAX
end

local function standing(key, history, nonce, seen, seen_sequence, ttl_ms)
    local kind = redis.call('TYPE', key).ok
    if kind ~= 'hash' and kind ~= 'none' then
        return nil
    end
    local here = lineage()
    local found = redis.call('HMGET', key, 'incarnation', 'sequence', 'lineage')
    local incarnation, text = found[1], found[2]
    local whole = incarnation and text and #incarnation == 24 and #text <= 16
        and incarnation:match('^[0-9a-f]+$') and text:match('^[0-9]+$')
    local sequence = whole and tonumber(text) or 0
    local spent = not whole or sequence >= SEQUENCE_MAX or found[3] ~= here
        or behind(incarnation, sequence, seen, seen_sequence)
    if spent then
        incarnation, sequence = following(nonce, whole and incarnation or '', seen), 0
        redis.call('DEL', key)
        redis.call('HSET', key, 'incarnation', incarnation, 'sequence', '0', 'lineage', here)
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
