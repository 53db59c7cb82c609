-- The Pulse layout: keys and values of goadesign/pulse, pull request 82. Names are not escaped there,
-- nothing is declared, and there is no nonce.

local S = {}

local function flat() return 'pulse:stream:' .. A.name end

function S.keys(generation)
  local owned = flat() .. ':generation:' .. generation
  local map = 'map:stream:' .. A.name .. ':generation:' .. generation
  local log = generation == '1' and flat() or owned
  return {
    log = log, recovery = log .. ':sink-recovery:' .. generation, once = owned .. ':idempotency',
    registry = owned .. ':resources', members = map .. ':sinks:content', channel = map .. ':sinks:updates',
    config = function(group) return owned .. ':sink:' .. group .. ':config' end,
    lease = function(group) return owned .. ':sink:' .. group .. ':stalelease' end,
    alive = function(group) return map .. ':sink:' .. group .. ':keepalive:content' end,
    alive_channel = function(group) return map .. ':sink:' .. group .. ':keepalive:updates' end,
  }
end

local life_key = flat() .. ':lifecycle'

local function read_life()
  local fields = redis.call('HMGET', life_key,
    'state', 'generation', 'physical_key', 'retention_config', 'deadline_ms', 'ttl_owned')
  return {
    state = fields[1] or nil, generation = fields[2] or nil, physical = fields[3] or nil,
    contract = fields[4] or nil, deadline = fields[5] or nil, ttl_owned = fields[6] or nil,
  }
end

local function plan_for(generation, text, write, keys)
  local C = nil
  if text then
    C = contract(text)
    if not C then return nil, refuse('STREAMRETENTIONINVALID ' .. text) end
  end
  return {generation = generation, keys = keys or S.keys(generation), C = C, write = write}
end

local function conflict(L, wanted, creating)
  local deadline, ttl = wanted.deadline, wanted.mode == 'ttl'
  if L.deadline then
    return (deadline and deadline ~= L.deadline) or ttl
  elseif L.ttl_owned then
    return deadline ~= nil
  end
  return not creating and (deadline ~= nil or ttl) and not L.contract
end

local function follow(L)
  local expected = S.keys(A.bound)
  if not L.generation then
    if A.bound ~= '1' or exists(life_key) or A.ended then return nil, refuse('STREAMDESTROYED') end
    if not A.restores or A.contract == '' then return nil, refuse('STREAMNOTFOUND') end
    return plan_for('1', A.contract, 'restore')
  end
  if L.generation ~= A.bound then return nil, refuse('STREAMDESTROYED ' .. L.generation) end
  if A.destroys and L.state == 'destroyed' then return plan_for(L.generation, L.contract, 'none') end
  if L.state ~= 'active' or L.physical ~= expected.log or A.ended then
    return nil, refuse('STREAMDESTROYED ' .. L.generation)
  end
  if A.check_contract and A.contract ~= '' and L.contract ~= A.contract then
    return nil, refuse('STREAMCONFIGMISMATCH')
  end
  return plan_for(L.generation, L.contract, 'none', expected)
end

local function find(L)
  local wanted = contract(A.contract)
  if A.creates and A.wanted_first then
    local late = elapsed(wanted)
    if late then return nil, late end
  end
  if not L.generation then
    if not A.creates then return nil, refuse('STREAMNOTFOUND') end
    return plan_for('1', A.contract, 'make')
  end
  if L.state ~= 'active' then
    if not A.creates then return nil, refuse('STREAMDESTROYED ' .. L.generation) end
    return plan_for(next_of(L.generation), A.contract, 'make')
  end
  if A.explicit and L.contract and L.contract ~= A.contract then return nil, refuse('STREAMCONFIGMISMATCH') end
  if conflict(L, wanted, A.creates) then return nil, refuse('STREAMDEADLINECONFLICT') end
  if not A.creates then
    if L.physical ~= S.keys(L.generation).log then return nil, refuse('STREAMDESTROYED') end
    return plan_for(L.generation, L.contract, 'none')
  end
  if L.physical and L.physical ~= S.keys(L.generation).log then return nil, refuse('STREAMDESTROYED') end
  local write = (L.physical and L.contract) and 'none' or 'repair'
  return plan_for(L.generation, L.contract or A.contract, write)
end

function S.bind()
  local L = read_life()
  local plan, no = nil, generation_fault(L.generation)
  if no then return nil, no end
  if A.bound ~= '' then plan, no = follow(L) else plan, no = find(L) end
  if not plan then return nil, no end
  plan.life = L
  -- The record's own deadline decides where a contract is missing.
  if not plan.C and L.deadline then plan.C_deadline = L.deadline end
  if A.check_clock then
    local late = elapsed(plan.C or {deadline = plan.C_deadline})
    if late then return nil, late end
  end
  return plan
end

local adopt

function S.commit(plan)
  if plan.write == 'none' then return end
  local C = plan.C
  local adopts = plan.write == 'make' and plan.generation == '1'
    or plan.write == 'repair' and not plan.life.contract
  if adopts and C.max ~= '0' then
    if A.explicit or redis.call('TYPE', plan.keys.log).ok == 'stream' then
      redis.call('XTRIM', plan.keys.log, 'MAXLEN', C.max)
    end
  elseif plan.write == 'make' and plan.generation ~= '1' then
    S.drop(plan)
  end
  redis.call('HSET', life_key, 'state', 'active', 'generation', plan.generation,
    'physical_key', plan.keys.log, 'retention_config', C.text)
  redis.call('HDEL', life_key, 'deadline_ms', 'ttl_owned')
  if C.deadline then redis.call('HSET', life_key, 'deadline_ms', C.deadline) end
  if C.mode == 'ttl' then redis.call('HSET', life_key, 'ttl_owned', '1') end
  if adopts then adopt(plan) end
  plan.write = 'none'
end

-- Every group that anything of the generation names: a registry that expired or was lost hides none.
local function group_names(K)
  local names = {}
  local function take(list) for _, name in ipairs(list) do names[name] = true end end
  if redis.call('TYPE', K.log).ok == 'stream' then
    for _, info in ipairs(redis.call('XINFO', 'GROUPS', K.log)) do names[info[2]] = true end
  end
  for _, key in ipairs({K.recovery, K.members}) do
    if redis.call('TYPE', key).ok == 'hash' then take(redis.call('HKEYS', key)) end
  end
  if redis.call('TYPE', K.registry).ok == 'set' then
    local before = #K.config('') - #':config'
    for _, key in ipairs(redis.call('SMEMBERS', K.registry)) do
      local name = string.match(string.sub(key, before + 1), '^(.*):config$')
      if name and K.config(name) == key then names[name] = true end
    end
  end
  local list = {}
  for name in pairs(names) do
    if string.sub(name, 1, 1) ~= '=' then list[#list + 1] = name end
  end
  return list
end

local function unlink(keys)
  in_chunks(1, #keys, function(from, to) redis.call('UNLINK', unpack(keys, from, to)) end)
end

function S.drop(plan)
  local K = plan.keys
  local keys = {}
  if redis.call('TYPE', K.registry).ok == 'set' then keys = redis.call('SMEMBERS', K.registry) end
  for _, group in ipairs(group_names(K)) do
    keys[#keys + 1] = K.config(group)
    keys[#keys + 1] = K.lease(group)
    keys[#keys + 1] = K.alive(group)
  end
  for _, key in ipairs({K.log, K.recovery, K.once, K.registry, K.members}) do keys[#keys + 1] = key end
  unlink(keys)
end

local function pack(text)
  local n = #text
  return string.char(n % 256, math.floor(n / 256) % 256, math.floor(n / 65536) % 256,
    math.floor(n / 16777216) % 256) .. text
end

local function map_set(key, channel, field, value)
  redis.call('HSET', key, field, value, '=kind', 'set')
  redis.call('HINCRBY', key, '=rev', 1)
  redis.call('PUBLISH', channel, 'set:' .. pack(field) .. pack(value) .. pack(redis.call('HGET', key, '=rev')))
end

local function map_del(key, channel, field)
  if redis.call('HDEL', key, field) == 0 then return end
  redis.call('HSET', key, '=kind', 'del')
  redis.call('HINCRBY', key, '=rev', 1)
  redis.call('PUBLISH', channel, 'del:' .. pack(field) .. pack(redis.call('HGET', key, '=rev')))
end

function S.destroy(plan)
  redis.call('HSET', life_key, 'state', 'destroyed')
  local K = plan.keys
  local rev = redis.pcall('HINCRBY', K.members, '=rev', 1)
  rev = type(rev) == 'number' and redis.call('HGET', K.members, '=rev') or '1'
  S.drop(plan)
  redis.call('PUBLISH', K.channel, 'destroy:' .. rev)
end

local function expire(key, at) redis.call('PEXPIREAT', key, at) end

-- Whether there is more than these few: no walk over all groups with every event.
local function has_groups(plan)
  local K = plan.keys
  local fields = redis.call('HLEN', K.recovery)
  return fields > 1 or fields == 1 and redis.call('HEXISTS', K.recovery, '=deadline') == 0
end

local function registry_has_groups(plan)
  local K = plan.keys
  local named = redis.call('SCARD', K.registry)
  if named == 0 or named > 2 then return named > 2 end
  local others = redis.call('SMISMEMBER', K.registry, K.once, K.recovery)
  return named > others[1] + others[2]
end

-- What ends with the data gets its instant; what holds a group's state does so only at a deadline.
function S.follow(plan, at)
  local K, ttl = plan.keys, plan.C.mode == 'ttl'
  if ttl and has_groups(plan) then redis.call('PERSIST', K.recovery) else expire(K.recovery, at) end
  if ttl and registry_has_groups(plan) then redis.call('PERSIST', K.registry) else expire(K.registry, at) end
  expire(K.once, at)
end

function S.added(plan)
  local K, C = plan.keys, plan.C
  if not C.deadline then return end
  redis.call('HSET', K.recovery, '=deadline', C.deadline)
  redis.call('SADD', K.registry, K.recovery)
  S.follow(plan, C.deadline)
end

-- What a group's state lies in ends with the deadline or not at all.
local function kept(plan, key)
  local C = plan.C
  if C and C.deadline then expire(key, C.deadline) else redis.call('PERSIST', key) end
end

-- What was left under an adopted number ends as the new contract says.
adopt = function(plan)
  local K = plan.keys
  local keys = {K.recovery, K.registry, K.members}
  for _, group in ipairs(group_names(K)) do
    for _, key in ipairs({K.config(group), K.lease(group), K.alive(group)}) do keys[#keys + 1] = key end
  end
  if plan.C.deadline then
    keys[#keys + 1] = K.log
    keys[#keys + 1] = K.once
  end
  for _, key in ipairs(keys) do kept(plan, key) end
end

local function kept_key(plan, key)
  if plan.C and plan.C.deadline then expire(key, plan.C.deadline) end
end

local function registered(plan, group)
  local K = plan.keys
  redis.call('SADD', K.registry, K.config(group), K.alive(group), K.lease(group))
  kept(plan, K.registry)
end

function S.cursor(plan, group) return redis.call('HGET', plan.keys.recovery, group) or nil end

function S.set_cursor(plan, group, id)
  redis.call('HSET', plan.keys.recovery, group, id)
  kept(plan, plan.keys.recovery)
  return id
end

-- Whether a position of a group is nothing but the start that was asked for.
local function only_wishes(plan, group, id)
  local start = redis.pcall('HGET', plan.keys.config(group), 'start_id')
  return start == id
end

-- Up to where anything was settled. A start that nobody has come past is not: it is only asked for, and may
-- lie anywhere.
function S.highest_cursor(plan)
  local highest = '0-0'
  local all = redis.call('HGETALL', plan.keys.recovery)
  for i = 1, #all, 2 do
    local group, id = all[i], all[i + 1]
    if string.sub(group, 1, 1) ~= '=' and string.match(id, '^%d+-%d+$') and id_less(highest, id)
      and not only_wishes(plan, group, id) then
      highest = id
    end
  end
  return highest
end

-- Where a group with nothing pending stands: only its information tells.
function S.delivered(plan, group)
  for _, info in ipairs(redis.call('XINFO', 'GROUPS', plan.keys.log)) do
    if info[2] == group then
      for i = 1, #info, 2 do
        if info[i] == 'last-delivered-id' then return info[i + 1] end
      end
    end
  end
  return '0-0'
end

function S.was_read() end

function S.seen() end

function S.fence(plan, group)
  return redis.call('HGET', plan.keys.lease(group), 'fence') or '0'
end

-- Every group that was made, or has a cursor left.
function S.group_names(plan)
  local names = {}
  for _, name in ipairs(group_names(plan.keys)) do
    if exists(plan.keys.config(name)) or S.cursor(plan, name) then names[#names + 1] = name end
  end
  return names
end

-- Holes have no place in this layout.
function S.note_read(plan, group, entries, caught_up)
  return caught_up and last_id(plan.keys.log) or entries[#entries][1], {}
end

-- Nothing of this has a place in this layout.
function S.miss() end
function S.missed() return {} end
function S.later() return {} end
function S.missed_fault() end
function S.later_fault() end
function S.ripen() end

local FIELDS = {'filter_kind', 'filter_value', 'start_id', 'no_ack', 'ack_grace_ms'}

function S.group_fits(plan, group, values)
  local key = plan.keys.config(group)
  if not exists(key) then return true end
  local stored = redis.call('HMGET', key, unpack(FIELDS))
  for i = 1, #FIELDS do
    if stored[i] ~= values[i] then return false end
  end
  return true
end

-- The five values of a group's contract; nil without one.
function S.contract_of(plan, group)
  local key = plan.keys.config(group)
  if not exists(key) then return nil end
  local values = redis.call('HMGET', key, unpack(FIELDS))
  for i = 1, #FIELDS do values[i] = values[i] or '' end
  return values
end

function S.put_group(plan, group, values)
  local key = plan.keys.config(group)
  for i = 1, #FIELDS do redis.call('HSET', key, FIELDS[i], values[i]) end
  registered(plan, group)
  kept_key(plan, key)
end

function S.lease(plan, group)
  local lease = redis.call('HMGET', plan.keys.lease(group), 'owner', 'fence', 'lease_until')
  if not lease[1] then return nil end
  return {owner = lease[1], fence = lease[2], till = lease[3]}
end

function S.raise_fence(plan, group)
  redis.call('HINCRBY', plan.keys.lease(group), 'fence', 1)
  return redis.call('HGET', plan.keys.lease(group), 'fence')
end

function S.put_lease(plan, group, owner, till)
  local key = plan.keys.lease(group)
  redis.call('HSET', key, 'owner', owner, 'lease_until', till)
  registered(plan, group)
  kept_key(plan, key)
end

local function is_hash(key)
  local kind = redis.call('TYPE', key).ok
  return kind == 'hash' or kind == 'none'
end

-- The list of members, read before anything is written.
local function members(plan, group)
  local text = redis.call('HGET', plan.keys.members, group)
  if not text then return {} end
  local fine, list = pcall(cjson.decode, text)
  if not fine or type(list) ~= 'table' then return nil end
  return list
end

function S.members_fault(plan, group)
  if not is_hash(plan.keys.members) then return refuse('SINKMEMBERSHIPINVALID type') end
  if not is_hash(plan.keys.alive(group)) then return refuse('SINKKEEPALIVEINVALID type') end
end

function S.has_room(plan, group, consumer, most)
  local list = members(plan, group)
  if not list then return refuse('SINKMEMBERSHIPINVALID') end
  for _, name in ipairs(list) do if name == consumer then return nil end end
  if #list >= most then return refuse('SINKFULL') end
end

function S.say_alive(plan, group, consumer)
  local K, list, is_member = plan.keys, members(plan, group), false
  for _, name in ipairs(list) do is_member = is_member or name == consumer end
  if not is_member then
    list[#list + 1] = consumer
    map_set(K.members, K.channel, group, cjson.encode(list))
    kept_key(plan, K.members)
  end
  map_set(K.alive(group), K.alive_channel(group), consumer, US .. '000')
  registered(plan, group)
  kept_key(plan, K.alive(group))
  kept_key(plan, K.members)
end

function S.forget(plan, group, consumer)
  local K = plan.keys
  map_del(K.alive(group), K.alive_channel(group), consumer)
  local text = redis.call('HGET', K.members, group)
  if not text then return end
  local list, rest, found = members(plan, group), {}, false
  if not list then
    -- A value of an older client: names between commas.
    list = {}
    for name in string.gmatch(text, '[^,]+') do list[#list + 1] = name end
  end
  for _, name in ipairs(list) do
    if name == consumer then found = true else rest[#rest + 1] = name end
  end
  if not found then return end
  if #rest == 0 then
    map_del(K.members, K.channel, group)
  else
    map_set(K.members, K.channel, group, cjson.encode(rest))
  end
end

-- Everybody of whom the maps know: a name, and when it was last alive; false for no word of it, nil for
-- one that is unreadable.
function S.everybody(plan, group)
  local all = {}
  for _, name in ipairs(members(plan, group) or {}) do all[name] = {us = false} end
  local alive = redis.call('HGETALL', plan.keys.alive(group))
  for i = 1, #alive, 2 do
    if string.sub(alive[i], 1, 1) ~= '=' then
      local value = alive[i + 1]
      local readable = is_decimal(value)
      all[alive[i]] = {us = readable and (tonumber(string.sub(value, 1, -4)) or 0) or nil, bad = not readable}
    end
  end
  return all
end

-- Checks of a publication with a key that come before the record is looked at.
function S.once_fault(plan)
  local K, C = plan.keys, plan.C
  if C.mode == 'none' then return refuse('STREAMDEADLINEREQUIRED') end
  for key, kind in pairs({[K.log] = 'stream', [K.once] = 'hash', [K.recovery] = 'hash', [K.registry] = 'set'}) do
    local there = redis.call('TYPE', key).ok
    if there ~= kind and there ~= 'none' then return refuse('STREAMRESOURCEINVALID') end
  end
end

local function once_instant(plan)
  local C = plan.C
  if C.deadline then return C.deadline end
  local left = redis.call('PEXPIRETIME', plan.keys.log)
  -- An instant that is not ahead would end the log in the step that publishes.
  if C.sliding or left <= NOW then return text_of(NOW + C.value) end
  return text_of(left)
end

function S.once_begin(plan)
  plan.instant = once_instant(plan)
end

-- The ID of the same event, or false; or a refusal.
function S.once_find(plan, key, event)
  if plan.write == 'make' and plan.generation ~= '1' then return false end
  local record = redis.call('HGET', plan.keys.once, key)
  if not record then return false end
  local at = string.find(record, '\0', 1, true)
  if not at then return nil, refuse('IDEMPOTENCYINVALID') end
  if string.sub(record, at + 1) ~= identity(event.name, event.topic, event.payload) then
    return nil, refuse('IDEMPOTENCYCONFLICT')
  end
  return string.sub(record, 1, at - 1)
end

function S.once_room() end

function S.once_put(plan, key, event, id)
  local K = plan.keys
  redis.call('HSET', K.once, key, id .. '\0' .. identity(event.name, event.topic, event.payload))
  redis.call('SADD', K.registry, K.once, K.recovery)
end

function S.once_end(plan, published)
  local K = plan.keys
  redis.call('HSET', K.recovery, '=deadline', plan.instant)
  expire(K.log, plan.instant)
  S.follow(plan, plan.instant)
end

-- A replay accepts only a record that holds everything and contradicts nothing.
function S.replay_fault()
  if not exists(life_key) then return nil end
  local L = read_life()
  local mismatch = refuse('STREAMCONFIGMISMATCH')
  if not L.generation or not is_decimal(L.generation) or L.generation == '0' then return mismatch end
  if L.state == 'destroyed' then return nil end
  if L.state ~= 'active' then return mismatch end
  if not L.physical or not L.contract then return refuse('STREAMCONFIGMISSING') end
  local C = contract(L.contract)
  if L.physical ~= S.keys(L.generation).log or not C then return mismatch end
  if L.deadline ~= C.deadline or (L.ttl_owned == '1') ~= (C.mode == 'ttl') then return mismatch end
  if L.ttl_owned and L.ttl_owned ~= '1' then return mismatch end
end
