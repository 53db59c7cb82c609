-- Effects that more than one operation has, whatever the layout.

-- A write, or the making of a group, gives the log its expiry.
local function touch(plan)
  local C, log = plan.C, plan.keys.log
  if not C then return end
  if C.deadline then
    redis.call('PEXPIREAT', log, C.deadline)
  elseif C.mode == 'ttl' then
    local at = text_of(NOW + C.value)
    if C.sliding then
      redis.call('PEXPIREAT', log, at)
      S.follow(plan, at)
    elseif redis.call('PTTL', log) == -1 then
      redis.call('PEXPIREAT', log, at)
    end
  end
end

-- An empty log that has given out every position up to `id`.
local function make_log(key, id)
  redis.call('XGROUP', 'CREATE', key, '=', '0', 'MKSTREAM')
  redis.call('XGROUP', 'DESTROY', key, '=')
  if id ~= '0-0' then redis.call('XSETID', key, id) end
end

-- Whether no position is left behind this one: a server counts on only within a millisecond.
local function is_spent(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return seq == LAST and not decimal_less(ms, MS)
end

-- Refuses where no position is left, behind the last one or, where there is no log, behind all that was given.
local function position_fault(plan)
  local kind, last = redis.call('TYPE', plan.keys.log).ok, nil
  if kind == 'stream' then last = last_id(plan.keys.log) end
  if kind == 'none' then last = S.highest_cursor(plan) end
  if last and is_spent(last) then return refuse('STREAMNOPOSITION') end
end

-- The same, where something is written before the event. Where nothing is, the event itself finds out.
local function early_position_fault(plan)
  if plan.write ~= 'none' and not is_anew(plan) then return position_fault(plan) end
end

-- Adds by the clock, and behind the last position where that lies ahead of the clock.
local function add_behind(key, args, at)
  local id = redis.pcall(unpack(args))
  if type(id) == 'table' and id.err then
    if redis.call('TYPE', key).ok ~= 'stream' then return redis.call(unpack(args)) end
    args[at] = string.match(last_id(key), '^(%d+)-') .. '-*'
    id = redis.call(unpack(args))
  end
  return id
end

-- The position of the event, or a refusal. One command where the log is there and its last position is not
-- ahead of the clock; all else is looked at only when that one did nothing.
local function append(plan, event)
  local key, max = plan.keys.log, plan.C.max
  local id = publish(key, max, event.name, event.topic, event.payload)
  if type(id) == 'string' then return id end
  local no = position_fault(plan)
  if no then return nil, no end
  if not id then
    local floor = S.highest_cursor(plan)
    if not id_less(floor, MS .. '-0') then make_log(key, floor) end
  end
  local args = {'XADD', key, 'MAXLEN', '=', max, MS .. '-*', 'n', event.name, 'p', event.payload}
  if max == '0' then args = {'XADD', key, MS .. '-*', 'n', event.name, 'p', event.payload} end
  if event.topic ~= '' then
    args[#args + 1] = 't'
    args[#args + 1] = event.topic
  end
  return add_behind(key, args, max == '0' and 3 or 6)
end

-- What of an entry is there to be given back: whether it is pending for this consumer and still kept.
local function held(plan, group, id, consumer)
  local pending = redis.call('XPENDING', plan.keys.log, group, id, id, 1, consumer)
  if not pending[1] then return nil end
  local entry = redis.call('XRANGE', plan.keys.log, id, id)
  return entry[1], pending[1][4]
end

-- Up to where the group has settled everything.
local function settled(plan, group)
  local key = plan.keys.log
  local pending = redis.call('XPENDING', key, group, '-', '+', 1)
  if not pending[1] then return S.delivered(plan, group) end
  return newest_before(key, pending[1][1])
end

local function has_group(key, group)
  local pending = redis.pcall('XPENDING', key, group, '-', '+', 1)
  return not (type(pending) == 'table' and pending.err)
end

local function no_group(plan, group)
  if redis.call('TYPE', plan.keys.log).ok ~= 'stream' or not has_group(plan.keys.log, group) then
    return refuse('NOGROUP')
  end
end

local function lease_fault(plan, group, owner, fence)
  local lease = S.lease(plan, group)
  if lease and lease.owner == owner and lease.fence == fence and NOW < tonumber(lease.till) then return end
  return refuse('SINKLEASELOST ' .. fence)
end

local function renew(plan, group, owner, lease_ms)
  S.put_lease(plan, group, owner, text_of(NOW + tonumber(lease_ms)))
end
