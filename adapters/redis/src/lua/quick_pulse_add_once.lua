-- How many fields and members there are is asked before anything is written: whoever is of another type says so.
local log, max, value, sliding = quick_log('^v=2|max=(%d+)|mode=ttl|value=(%d+)|sliding=(%a+)$')
if log then
  local owned = 'pulse:stream:' .. ARGV[2] .. ':generation:' .. ARGV[1]
  local once, registry, recovery = owned .. ':idempotency', owned .. ':resources', log .. ':sink-recovery:' .. ARGV[1]
  local record, fields, named = redis.pcall('HGET', once, ARGV[ARG + 1])
  if not record then fields, named = redis.pcall('HLEN', recovery), redis.pcall('SCARD', registry) end
  if type(fields) == 'number' and type(named) == 'number' then
    local left = sliding == 'false' and redis.call('PEXPIRETIME', log) or 0
    local name, topic, payload = ARGV[ARG + 2], ARGV[ARG + 3], ARGV[ARG + 4]
    local id = publish(log, max, name, topic, payload)
    if type(id) == 'string' then
      local instant = text_of(left > NOW and left or NOW + value)
      redis.call('HSET', once, ARGV[ARG + 1], id .. '\0' .. identity(name, topic, payload))
      named = named + redis.call('SADD', registry, once, recovery)
      fields = fields + redis.call('HSET', recovery, '=deadline', instant)
      if left <= NOW then redis.call('PEXPIREAT', log, instant) end
      -- What holds a group's state has no end.
      if fields > 1 then redis.call('PERSIST', recovery) else redis.call('PEXPIREAT', recovery, instant) end
      if named > 2 then redis.call('PERSIST', registry) else redis.call('PEXPIREAT', registry, instant) end
      redis.call('PEXPIREAT', once, instant)
      return US .. ' ' .. id .. ' 1'
    end
  end
end
