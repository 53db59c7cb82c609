if not ARGV[ARG + 4] then
  local log, max = quick_log('^v=2|max=(%d+)|mode=none|')
  local id = log and publish(log, max, ARGV[ARG + 1], ARGV[ARG + 2], ARGV[ARG + 3])
  if type(id) == 'string' then return US .. ' ' .. id end
end
