-- The quick ways of the Tagged layout. What most calls are: by a handle that is bound to what is there, in a
-- contract without a deadline. They go straight on, since a server makes every function anew with each call;
-- what is not so has changed nothing, and is looked at by the script that follows.

-- The greatest length, mode and window of the contract, if the asker is bound to what is there and knows it.
local function quick_contract()
  if ARGV[2] == '' then return nil end
  local life = redis.call('HMGET', KEYS[1], 'state', 'generation', 'nonce', 'contract')
  if life[1] ~= 'active' or life[2] ~= ARGV[2] or life[3] ~= ARGV[3] or life[4] ~= ARGV[4] then return nil end
  local max, mode, once = string.match(ARGV[4], '^v=1|max=(%d+)|mode=(%a+)|value=%d+|sliding=%a+|once=(%d+)$')
  if mode == 'deadline' then return nil end
  return max, mode, once
end

local function expired(at, most)
  return redis.call('ZRANGEBYSCORE', at, '-inf', '(' .. MS, 'LIMIT', 0, most)
end

local function until_at_least(key, instant)
  if redis.call('PEXPIRETIME', key) < tonumber(instant) then redis.call('PEXPIREAT', key, instant) end
end

-- The record of an event under a key, in place of those whose window is over.
local function put_record(once, at, key, record, instant, dropped)
  local past = expired(at, dropped)
  if #past > 0 then
    redis.call('HDEL', once, unpack(past))
    redis.call('ZREM', at, unpack(past))
  end
  redis.call('ZADD', at, instant, key)
  -- Written last: what is told of an event must be true of the log.
  redis.call('HSET', once, key, record)
  until_at_least(once, instant)
  until_at_least(at, instant)
end
