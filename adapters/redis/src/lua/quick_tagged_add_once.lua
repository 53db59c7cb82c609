local max, window = quick_contract('^v=1|max=(%d+)|mode=none|value=0|sliding=false|once=(%d+)$')
if max and not redis.call('HGET', KEYS[3], ARGV[ARG + 1]) and redis.call('HLEN', KEYS[3]) < ONCE_RECORDS_MAX then
  local past = expired(KEYS[4])
  local id = publish(KEYS[2], max, ARGV[ARG + 2], ARGV[ARG + 3], ARGV[ARG + 4])
  if type(id) == 'string' then
    put_record(KEYS[3], KEYS[4], ARGV[ARG + 1], id, ARGV[ARG + 5], NOW + window, past)
    return US .. ' ' .. id .. ' 1'
  end
end
