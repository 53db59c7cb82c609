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

-- The last position given out, how many entries were ever published, and how many are kept.
local function facts(key)
  local last, added, kept = '0-0', 0, 0
  if not exists(key) then return last, added, kept end
  local info = redis.call('XINFO', 'STREAM', key)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then last = info[i + 1] end
    if info[i] == 'entries-added' then added = info[i + 1] end
    if info[i] == 'length' then kept = info[i + 1] end
  end
  return last, added, kept
end

local function last_id(key)
  local last = facts(key)
  return last
end

-- An empty log that has given out every position up to `id`.
local function make_log(key, id)
  redis.call('XGROUP', 'CREATE', key, '=', '0', 'MKSTREAM')
  redis.call('XGROUP', 'DESTROY', key, '=')
  if id ~= '0-0' then redis.call('XSETID', key, id) end
end

-- Refuses before the first effect where no position is left.
local function position_fault(plan)
  if redis.call('TYPE', plan.keys.log).ok ~= 'stream' then return end
  local top = redis.call('XREVRANGE', plan.keys.log, '+', '-', 'COUNT', 1)
  -- Only a log whose newest entry lies ahead of the clock can be near its end.
  if top[1] and id_less(top[1][1], MS .. '-0') then return end
  if last_id(plan.keys.log) == LAST .. '-' .. LAST then return refuse('STREAMNOPOSITION') end
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

local function append(plan, event)
  local key, max = plan.keys.log, plan.C.max
  if not exists(key) then
    local floor = S.highest_cursor(plan)
    if not id_less(floor, MS .. '-0') then
      make_log(key, floor)
    end
  end
  local args = {'XADD', key}
  if max ~= '0' then
    args[#args + 1] = 'MAXLEN'
    args[#args + 1] = '='
    args[#args + 1] = max
  end
  local at = #args + 1
  for _, text in ipairs({MS .. '-*', 'n', event.name, 'p', event.payload}) do args[#args + 1] = text end
  if event.topic ~= '' then
    args[#args + 1] = 't'
    args[#args + 1] = event.topic
  end
  return add_behind(key, args, at)
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
  local pending = redis.call('XPENDING', key, group)
  if pending[1] == 0 then return S.delivered(plan, group) end
  local before = redis.call('XREVRANGE', key, '(' .. pending[2], '-', 'COUNT', 1)
  return before[1] and before[1][1] or '0-0'
end

local function has_group(key, group)
  local pending = redis.pcall('XPENDING', key, group)
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
