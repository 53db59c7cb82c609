-- The quick ways of the Pulse layout. What most calls are: by a handle that is bound to what is there, in a
-- contract without a deadline that it knows. What is not so has changed nothing, and is looked at by the script
-- that follows.

-- The log, and the greatest length and mode of its contract.
local function quick_log()
  local ended = string.byte(ARGV[7], 2) == string.byte('1')
  if ARGV[2] == '' or ARGV[4] == '' or ended then return nil end
  local flat = 'pulse:stream:' .. ARGV[1]
  local log = flat
  if ARGV[2] ~= '1' then log = flat .. ':generation:' .. ARGV[2] end
  local life = redis.call('HMGET', flat .. ':lifecycle', 'state', 'generation', 'physical_key', 'retention_config')
  if life[1] ~= 'active' or life[2] ~= ARGV[2] or life[3] ~= log or life[4] ~= ARGV[4] then return nil end
  local max, mode = string.match(ARGV[4], '^v=2|max=(%d+)|mode=(%a+)')
  if mode == 'deadline' then return nil end
  return log, max, mode
end
