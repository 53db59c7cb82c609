if #ARGV - ARG - 1 <= 1000 and #ARGV > ARG + 1 and quick_contract() then
  local log, group = KEYS[2], ARGV[ARG + 1]
  -- Looked at before anything is settled.
  local stored = redis.call('HMGET', KEYS[5], 'read:' .. group, 'cursor:' .. group)
  local read = string.match(stored[1] or '0-0', '^%S+')
  if read and is_id(read) and (not stored[2] or is_id(stored[2])) then
    local count = redis.call('XACK', log, group, unpack(ARGV, ARG + 2))
    if count == 0 then return {'same', US, 0, ''} end
    local pending = redis.call('XPENDING', log, group, '-', '+', 1)
    local id = pending[1] and newest_before(log, pending[1][1]) or read
    -- The cursor of a group never falls.
    if stored[2] and id_less(id, stored[2]) then id = stored[2] end
    if id ~= stored[2] then redis.call('HSET', KEYS[5], 'cursor:' .. group, id) end
    return {'same', US, count, id}
  end
end
