if ARGV[ARG + 4] == '' then
  local max, mode = quick_contract()
  local id = mode == 'none' and publish(KEYS[2], max, ARGV[ARG + 1], ARGV[ARG + 2], ARGV[ARG + 3])
  if type(id) == 'string' then return {'same', US, id} end
end
