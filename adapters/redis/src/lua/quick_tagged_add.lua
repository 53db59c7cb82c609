if not ARGV[ARG + 4] then
  local max = quick_contract('^v=1|max=(%d+)|mode=none|')
  local id = max and publish(KEYS[2], max, ARGV[ARG + 1], ARGV[ARG + 2], ARGV[ARG + 3])
  if type(id) == 'string' then return US .. ' ' .. id end
end
