local max, mode, once = quick_contract()
if mode == 'none' and not redis.call('HGET', KEYS[3], ARGV[ARG + 1])
  and redis.call('HLEN', KEYS[3]) < tonumber(ARGV[ARG + 6]) then
  local id = publish(KEYS[2], max, ARGV[ARG + 2], ARGV[ARG + 3], ARGV[ARG + 4])
  if type(id) == 'string' then
    local record, instant = id .. ' ' .. ARGV[ARG + 5], text_of(NOW + tonumber(once))
    put_record(KEYS[3], KEYS[4], ARGV[ARG + 1], record, instant, ARGV[ARG + 7])
    return {'same', US, id, '1'}
  end
end
