-- As many as were asked for, behind others that are kept: nothing was trimmed that the group has not had. Whether
-- there are holes to tell is looked at before anything is taken.
if quick_contract() then
  local log, group, most = KEYS[2], ARGV[ARG + 1], tonumber(ARGV[ARG + 3])
  local stored = redis.call('HMGET', KEYS[5], 'read:' .. group, 'missed:' .. group)
  if not stored[2] and is_id(string.match(stored[1] or '0-0', '^%S*')) then
    streams = redis.pcall('XREADGROUP', 'GROUP', group, ARGV[ARG + 2], 'COUNT', most, 'STREAMS', log, '>')
    local entries = streams and streams[1] and streams[1][2]
    if entries and #entries == most then
      local first, last = entries[1][1], entries[most][1]
      local seen = tonumber(string.match(stored[1] or '', ' (%d+)$'))
      if kept_before(log, first) then
        redis.call('HSET', KEYS[5], 'read:' .. group, seen and last .. ' ' .. text_of(seen + most) or last)
        return {'same', US, entries, last, {}}
      end
    end
  end
end
