-- The quick ways of the Pulse layout. What most calls are: by a handle that is bound to what is there, in a
-- contract without a deadline that it knows. What is not so has changed nothing, and is looked at by the script
-- that follows.

-- The log, and what a pattern finds in its contract. Without a pattern: something, if there is no deadline.
local function quick_log(pattern)
  if string.sub(ARGV[4], 1, 2) ~= '10' then return nil end
  local flat = 'pulse:stream:' .. ARGV[2]
  local log = flat
  if ARGV[1] ~= '1' then log = flat .. ':generation:' .. ARGV[1] end
  local life = redis.call('HMGET', flat .. ':lifecycle', 'state', 'generation', 'physical_key', 'retention_config')
  if life[1] ~= 'active' or life[2] ~= ARGV[1] or life[3] ~= log or life[4] ~= ARGV[3] then return nil end
  local max, value, sliding = string.match(ARGV[3], pattern or '^v=2|max=%d+|mode=[nt]')
  if max then return log, max, value, sliding end
end

-- What makes an event the same: its parts, each behind its length.
local function identity(name, topic, payload)
  return struct.pack('>I8c0I8c0I8c0', #name, name, #topic, topic, #payload, payload)
end
