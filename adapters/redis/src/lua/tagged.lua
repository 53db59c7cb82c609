-- The Tagged layout: six keys of one stream in one slot, all of them declared. KEYS: the lifecycle
-- record, then five keys of the generation that the asker supposes, then, for an asker who is bound to none,
-- five of the one after it.

local S = {}

function S.keys(generation)
  -- Who only adds an event is given no more than that needs.
  if #KEYS == 3 then return {log = KEYS[2], groups = KEYS[3]} end
  local offset
  if generation == A.where then
    offset = 1
  elseif generation == next_of(A.where) then
    offset = 6
  else
    return nil
  end
  return {
    log = KEYS[offset + 1], once = KEYS[offset + 2], at = KEYS[offset + 3], groups = KEYS[offset + 4],
    dead = KEYS[offset + 5],
  }
end

local life_key = KEYS[1]

local function read_life()
  local fields = redis.call('HMGET', life_key, 'state', 'generation', 'nonce', 'contract')
  if not fields[2] then return nil end
  return {state = fields[1], generation = fields[2], nonce = fields[3], contract = fields[4]}
end

local function plan_for(generation, nonce, text, write)
  local C = contract(text or '')
  if not C then return nil, refuse('STREAMRETENTIONINVALID ' .. (text or '')) end
  local keys = S.keys(generation)
  -- Not a refusal: the asker supposed another generation, and asks again with its keys.
  if not keys then return nil, {'moved', US, generation} end
  return {generation = generation, nonce = nonce, keys = keys, C = C, write = write}
end

local function follow(L)
  if not L then return nil, refuse('STREAMLOST') end
  if L.generation == A.bound then
    if L.nonce ~= A.nonce then return nil, refuse('STREAMLOST ' .. L.generation) end
    if L.state ~= 'active' and not A.destroys then return nil, refuse('STREAMDESTROYED ' .. L.generation) end
    return plan_for(L.generation, L.nonce, L.contract, 'none')
  end
  if decimal_less(A.bound, L.generation) then return nil, refuse('STREAMDESTROYED ' .. L.generation) end
  return nil, refuse('STREAMLOST ' .. L.generation)
end

local function find(L)
  if A.creates and A.wanted_first then
    local late = elapsed(contract(A.contract))
    if late then return nil, late end
  end
  if not L then
    if not A.creates then return nil, refuse('STREAMNOTFOUND') end
    return plan_for('1', A.nonce, A.contract, 'make')
  end
  if L.state ~= 'active' then
    if not A.creates then return nil, refuse('STREAMDESTROYED ' .. L.generation) end
    return plan_for(next_of(L.generation), A.nonce, A.contract, 'make')
  end
  if A.explicit and L.contract ~= A.contract then return nil, refuse('STREAMCONFIGMISMATCH') end
  return plan_for(L.generation, L.nonce, L.contract, 'none')
end

function S.bind()
  local L = read_life()
  local plan, no = nil, generation_fault(L and L.generation)
  if no then return nil, no end
  if A.bound ~= '' then plan, no = follow(L) else plan, no = find(L) end
  if not plan then return nil, no end
  plan.life = L or {}
  if A.check_clock then
    local late = elapsed(plan.C)
    if late then return nil, late end
  end
  return plan
end

function S.drop(plan)
  local K = plan.keys
  redis.call('UNLINK', K.log, K.once, K.at, K.groups, K.dead)
end

function S.commit(plan)
  if plan.write == 'none' then return end
  S.drop(plan)
  redis.call('HSET', life_key, 'state', 'active', 'generation', plan.generation, 'nonce', plan.nonce,
    'contract', plan.C.text)
  plan.write = 'none'
end

function S.destroy(plan)
  redis.call('HSET', life_key, 'state', 'destroyed')
  S.drop(plan)
end

-- Records have a window of their own, and groups no end but the deadline.
function S.follow() end

function S.added() end

local function kept(plan)
  if plan.C.deadline then redis.call('PEXPIREAT', plan.keys.groups, plan.C.deadline) end
end

local function get(plan, what, group) return redis.call('HGET', plan.keys.groups, what .. ':' .. group) or nil end

local function put(plan, what, group, value)
  redis.call('HSET', plan.keys.groups, what .. ':' .. group, value)
  kept(plan)
end

-- A list of the books of a group; nil for one that is unreadable: somebody else wrote it. `parts` is how
-- many texts each of its items has.
local function unpacked(plan, what, group, parts)
  local text = get(plan, what, group)
  if not text then return {} end
  local fine, list = pcall(cjson.decode, text)
  if not fine or type(list) ~= 'table' then return nil end
  for _, item in ipairs(list) do
    if type(item) ~= 'table' then return nil end
    for at = 1, parts do
      if type(item[at]) ~= 'string' then return nil end
    end
  end
  return list
end

-- Looked at before anything is written.
function S.missed_fault(plan, group)
  if not unpacked(plan, 'missed', group, 5) then return refuse('GROUPBOOKSINVALID missed') end
end

function S.later_fault(plan, group)
  if not unpacked(plan, 'later', group, 2) then return refuse('GROUPBOOKSINVALID later') end
end

-- A list as one packed field; an empty one is no field, since an empty table would read back as an object.
local function put_list(plan, what, group, list)
  if #list == 0 then
    redis.call('HDEL', plan.keys.groups, what .. ':' .. group)
  else
    put(plan, what, group, cjson.encode(list))
  end
end

function S.cursor(plan, group) return get(plan, 'cursor', group) end

-- The cursor of a group never falls.
function S.set_cursor(plan, group, id)
  local stored = get(plan, 'cursor', group)
  if stored == id or stored and id_less(id, stored) then return stored end
  put(plan, 'cursor', group, id)
  return id
end

-- Where a group was asked to begin, by the text of its contract; nil where that cannot be told.
local function start_of(text)
  local fine, values = pcall(cjson.decode, text)
  return fine and type(values) == 'table' and values[3] or nil
end

-- Up to where anything was given out or settled. A start that nobody has come past is neither: it is only
-- asked for, and may lie anywhere.
function S.highest_cursor(plan)
  local highest, starts = '0-0', {}
  local all = redis.call('HGETALL', plan.keys.groups)
  for i = 1, #all, 2 do
    local group = string.match(all[i], '^contract:(.*)$')
    if group then starts[group] = start_of(all[i + 1]) end
  end
  for i = 1, #all, 2 do
    -- What was given out too: others may still be acknowledging by those positions.
    local what, group = string.match(all[i], '^(%a+):(.*)$')
    local id = (what == 'cursor' or what == 'read') and string.match(all[i + 1], '^%S+')
    if id and id ~= starts[group] and id_less(highest, id) then highest = id end
  end
  return highest
end

-- Written down with every read: no walk over all groups is needed to settle.
-- Up to where, and how many entries had been published up to there, if somebody counted.
local function read_up_to(text)
  local id, seen = string.match(text or '0-0', '^(%S+) ?(%d*)$')
  return id, tonumber(seen)
end

function S.delivered(plan, group)
  local id = read_up_to(get(plan, 'read', group))
  return id
end

function S.seen(plan, group)
  local _, seen = read_up_to(get(plan, 'read', group))
  return seen
end

function S.fence(plan, group) return get(plan, 'fence', group) or '0' end

-- Every group that was made, or has a cursor left.
function S.group_names(plan)
  local names, known = {}, {}
  local all = redis.call('HGETALL', plan.keys.groups)
  for i = 1, #all, 2 do
    local what, name = string.match(all[i], '^(%a+):(.*)$')
    if (what == 'contract' or what == 'cursor') and not known[name] then
      known[name] = true
      names[#names + 1] = name
    end
  end
  return names
end

-- The five values of a group's contract; nil without one.
function S.contract_of(plan, group)
  local text = get(plan, 'contract', group)
  if not text then return nil end
  local fine, values = pcall(cjson.decode, text)
  fine = fine and type(values) == 'table'
  for at = 1, 5 do fine = fine and type(values[at]) == 'string' end
  if not fine then return nil, refuse('GROUPBOOKSINVALID contract') end
  return values
end

function S.was_read(plan, group, id, seen)
  put(plan, 'read', group, seen and id .. ' ' .. text_of(seen) or id)
end

-- Takes note of what the group was just given, and tells what it never will be. Only the oldest entries
-- are trimmed: what is kept before the first one given proves that nothing behind it was. Up to where the
-- group has read, and the holes nobody said were told.
function S.note_read(plan, group, entries, caught_up)
  local stored = redis.call('HMGET', plan.keys.groups, 'read:' .. group, 'missed:' .. group)
  local after, seen = read_up_to(stored[1])
  local missed = stored[2] and cjson.decode(stored[2]) or {}
  local count = #entries
  local first = count > 0 and entries[1][1] or nil
  local anchored = first and kept_before(plan.keys.log, first)
  local last, added, kept
  -- The only word of these holds two whole entries too.
  if caught_up or not anchored then last, added, kept = facts(plan.keys.log) end
  local reached = caught_up and last or entries[count][1]
  local now_seen
  if caught_up then
    now_seen = added
  elseif anchored then
    now_seen = seen and seen + count
  else
    now_seen = math.max(0, added - (kept - count))
  end
  if count > 0 or now_seen ~= seen then
    S.was_read(plan, group, count > 0 and entries[count][1] or after, now_seen)
  end
  if anchored or (not first and not seen) then return reached, missed end
  local events = seen and math.max(0, added - seen - (first and kept or 0))
  if events == 0 or (not events and after == '0-0') then return reached, missed end
  S.miss(plan, group, 'trimmed', after, first or '', events and text_of(events) or '')
  return reached, S.missed(plan, group)
end

-- Holes that nobody said was told: number, reason, the positions around them, and how many events.
function S.missed(plan, group) return unpacked(plan, 'missed', group, 5) end

local MISSED_MAX = 64

function S.miss(plan, group, reason, after, before, events)
  -- Numbers begin at the clock, so that a server that lost the last ones does not give them to others.
  local number, list = next_of(get(plan, 'missed-last', group) or '0'), S.missed(plan, group)
  if decimal_less(number, MS) then number = MS end
  put(plan, 'missed-last', group, number)
  if #list < MISSED_MAX then
    list[#list + 1] = {number, reason, after, before, events}
  else
    local last = list[#list]
    last[1] = number
    if id_less(after, last[3]) then last[3] = after end
    if before == '' or last[4] == '' then
      last[4] = ''
    elseif id_less(last[4], before) then
      last[4] = before
    end
    if events == '' or last[5] == '' then
      last[5] = ''
    else
      last[5] = text_of(tonumber(last[5]) + tonumber(events))
    end
  end
  put_list(plan, 'missed', group, list)
end

function S.told(plan, group, through)
  local rest = {}
  for _, hole in ipairs(S.missed(plan, group)) do
    if decimal_less(through, hole[1]) then rest[#rest + 1] = hole end
  end
  put_list(plan, 'missed', group, rest)
end

-- What is put off: pairs of position and instant, in one packed field.
function S.later(plan, group) return unpacked(plan, 'later', group, 2) end

function S.put_later(plan, group, list)
  if #list == 0 then
    redis.call('HDEL', plan.keys.groups, 'later:' .. group)
  else
    put(plan, 'later', group, cjson.encode(list))
  end
end

-- Gives entries to nobody, idle since `time`. They must be kept: for others Redis would forget that
-- they were pending, and nobody would be told.
local function shelve(plan, group, ids, time)
  in_chunks(1, #ids, function(from, to)
    local args = {'XCLAIM', plan.keys.log, group, '=', '0'}
    for i = from, to do args[#args + 1] = ids[i] end
    args[#args + 1] = 'TIME'
    args[#args + 1] = time
    args[#args + 1] = 'JUSTID'
    redis.call(unpack(args))
  end)
end

function S.put_off(plan, group, list, id, delay, most)
  local known
  for at, item in ipairs(list) do if item[1] == id then known = at end end
  if delay == 0 then
    if known then table.remove(list, known) end
    shelve(plan, group, {id}, '0')
    return true
  end
  if not known and #list >= most then return false end
  list[known or #list + 1] = {id, text_of(NOW + delay)}
  shelve(plan, group, {id}, MS)
  return true
end

-- Before a claim: what is due has been idle for ever, what is not has been idle for no time. What was
-- settled or taken meanwhile is no longer put off.
function S.ripen(plan, group)
  local list = S.later(plan, group)
  if #list == 0 then return end
  local rest, due, early = {}, {}, {}
  for _, item in ipairs(list) do
    local id = item[1]
    if #redis.call('XPENDING', plan.keys.log, group, id, id, 1, '=') > 0
      and #redis.call('XRANGE', plan.keys.log, id, id) > 0 then
      if NOW >= tonumber(item[2]) then
        due[#due + 1] = id
      else
        early[#early + 1] = id
        rest[#rest + 1] = item
      end
    end
  end
  shelve(plan, group, due, '0')
  shelve(plan, group, early, MS)
  S.put_later(plan, group, rest)
end

-- What vanished from the log stays pending, so that a claim tells of it.
function S.release(plan, group, consumer)
  local from = '-'
  while true do
    local rows = redis.call('XPENDING', plan.keys.log, group, from, '+', CHUNK, consumer)
    local kept = {}
    for _, row in ipairs(rows) do
      if #redis.call('XRANGE', plan.keys.log, row[1], row[1]) > 0 then kept[#kept + 1] = row[1] end
      from = '(' .. row[1]
    end
    shelve(plan, group, kept, '0')
    if #rows < CHUNK then return end
  end
end

function S.group_fits(plan, group, values)
  local stored = get(plan, 'contract', group)
  return not stored or stored == cjson.encode(values)
end

function S.put_group(plan, group, values) put(plan, 'contract', group, cjson.encode(values)) end

function S.lease(plan, group)
  local lease = get(plan, 'lease', group)
  if not lease then return nil end
  local till, owner = string.match(lease, '^(%d+) (.*)$')
  return {owner = owner, till = till, fence = get(plan, 'fence', group)}
end

function S.raise_fence(plan, group)
  redis.call('HINCRBY', plan.keys.groups, 'fence:' .. group, 1)
  return get(plan, 'fence', group)
end

function S.put_lease(plan, group, owner, till) put(plan, 'lease', group, till .. ' ' .. owner) end

-- One packed field: pairs of name and microseconds, in the order they came.
local function members(plan, group)
  return unpacked(plan, 'members', group, 2)
end

function S.members_fault(plan, group)
  if not members(plan, group) then return refuse('SINKMEMBERSHIPINVALID') end
end

function S.has_room(plan, group, consumer, most)
  local list = members(plan, group)
  for _, member in ipairs(list) do if member[1] == consumer then return nil end end
  if #list >= most then return refuse('SINKFULL') end
end

function S.say_alive(plan, group, consumer)
  local list, is_member = members(plan, group), false
  for _, member in ipairs(list) do
    if member[1] == consumer then
      is_member = true
      member[2] = US
    end
  end
  if not is_member then list[#list + 1] = {consumer, US} end
  put_list(plan, 'members', group, list)
end

function S.forget(plan, group, consumer)
  local rest, found = {}, false
  for _, member in ipairs(members(plan, group) or {}) do
    if member[1] == consumer then found = true else rest[#rest + 1] = member end
  end
  if found then put_list(plan, 'members', group, rest) end
end

function S.everybody(plan, group)
  local all = {}
  for _, member in ipairs(members(plan, group) or {}) do all[member[1]] = {us = tonumber(member[2])} end
  return all
end

function S.once_fault() end

function S.once_begin(plan)
  local at = NOW + plan.C.once
  if plan.C.deadline then at = math.min(at, tonumber(plan.C.deadline)) end
  plan.once_ms = at
end

function S.once_find(plan, key, event)
  if plan.write == 'make' then return false end
  local record = redis.call('HGET', plan.keys.once, key)
  if not record then return false end
  local at = redis.call('ZSCORE', plan.keys.at, key)
  if at and NOW > tonumber(at) then return false end
  local id, digest = string.match(record, '^(%d+%-%d+) (.*)$')
  if not id then return nil, refuse('IDEMPOTENCYINVALID') end
  if digest ~= event.digest then return nil, refuse('IDEMPOTENCYCONFLICT') end
  return id
end

-- A record is never pushed out inside its window. What is to be dropped is looked at before anything is written.
function S.once_room(plan)
  plan.past = {}
  if plan.write == 'make' then return end
  local count = redis.call('HLEN', plan.keys.once)
  plan.past = expired(plan.keys.at)
  if count - #plan.past < ONCE_RECORDS_MAX then return end
  local oldest = redis.call('ZRANGE', plan.keys.at, 0, 0, 'WITHSCORES')
  return refuse('IDEMPOTENCYFULL ' .. text_of(tonumber(oldest[2] or '0')))
end

function S.once_put(plan, key, event, id)
  put_record(plan.keys.once, plan.keys.at, key, id, event.digest, plan.once_ms, plan.past)
end

function S.once_end(plan, published, touch)
  if published then touch(plan) end
end
