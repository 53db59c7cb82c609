if ARGV[ARG + 4] == '' then
  local log, max, mode = quick_log()
  local id = mode == 'none' and publish(log, max, ARGV[ARG + 1], ARGV[ARG + 2], ARGV[ARG + 3])
  if type(id) == 'string' then return {'same', US, id} end
end
