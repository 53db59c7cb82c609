-- The quick ways of the Tagged layout. What most calls are: by a handle that is bound to what is there, in a
-- contract without a deadline. They go straight on, since a server makes every function anew with each call;
-- what is not so has changed nothing, and is looked at by the script that follows.

-- What a pattern finds in the contract, if the asker is bound to what is there and knows it. Without a pattern:
-- something, if there is no deadline.
local function quick_contract(pattern)
  if string.byte(ARGV[4]) ~= string.byte('1') then return nil end
  local life = redis.call('HMGET', KEYS[1], 'state', 'generation', 'nonce', 'contract')
  if life[1] ~= 'active' or life[2] ~= ARGV[1] or life[3] ~= ARGV[2] or life[4] ~= ARGV[3] then return nil end
  return string.match(ARGV[3], pattern or '^v=1|max=%d+|mode=[nt]')
end

-- Keys of records whose window is over, the oldest first.
local function expired(at)
  return redis.call('ZRANGEBYSCORE', at, '-inf', '(' .. MS, 'LIMIT', '0', ONCE_DROPPED_MAX)
end

-- An expiry that was earlier, or none, becomes this one. Where it is most likely earlier, one command does it.
local function until_at_least(key, instant, ms, earlier)
  if earlier and redis.call('PEXPIREAT', key, instant, 'GT') == 1 then return end
  if redis.call('PEXPIRETIME', key) < ms then redis.call('PEXPIREAT', key, instant) end
end

-- The record of an event under a key, in place of those whose window is over.
local function put_record(once, at, key, id, digest, ms, past)
  local instant = text_of(ms)
  if #past > 0 then
    redis.call('HDEL', once, unpack(past))
    redis.call('ZREM', at, unpack(past))
  end
  redis.call('ZADD', at, instant, key)
  -- Written last: what is told of an event must be true of the log.
  redis.call('HSET', once, key, id .. ' ' .. digest)
  -- The first event of its millisecond has most likely the latest instant.
  local first = string.sub(id, -2) == '-0'
  until_at_least(once, instant, ms, first)
  until_at_least(at, instant, ms, first)
end
