-- What stands before all else: one reading of the clock, and what the quick ways share with the others.

local clock = redis.call('TIME')
local US = clock[1] .. string.sub('00000' .. clock[2], -6)
local MS = string.sub(US, 1, -4)
local NOW = tonumber(MS)
-- The asker's own arguments come before those of the operation.
local ARG = 4

local function decimal_less(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

local function id_less(a, b)
  local am, as = string.match(a, '^(%d+)-(%d+)$')
  local bm, bs = string.match(b, '^(%d+)-(%d+)$')
  if am ~= bm then return decimal_less(am, bm) end
  return decimal_less(as, bs)
end

local function text_of(number) return string.format('%.0f', number) end

-- The oldest entry kept tells whether any lies before a position. Asked for the newest one before it, a server
-- walks the whole log where there is none.
local function oldest_kept(log)
  local oldest = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
  return oldest and oldest[1]
end

local function kept_before(log, id)
  local oldest = oldest_kept(log)
  return oldest ~= nil and id_less(oldest, id)
end

-- The position of the newest entry before this one.
local function newest_before(log, id)
  if not kept_before(log, id) then return '0-0' end
  return redis.call('XREVRANGE', log, '(' .. id, '-', 'COUNT', 1)[1][1]
end

-- Adds by the clock to a log that is there: the position; false without a log; or what kept it from being done.
-- Each form is written out: a list that is made and taken apart costs more than the rest of it.
local function publish(log, max, name, topic, payload)
  local add, at = redis.pcall, MS .. '-*'
  if topic == '' then
    if max == '0' then return add('XADD', log, 'NOMKSTREAM', at, 'n', name, 'p', payload) end
    return add('XADD', log, 'NOMKSTREAM', 'MAXLEN', '=', max, at, 'n', name, 'p', payload)
  end
  if max == '0' then return add('XADD', log, 'NOMKSTREAM', at, 'n', name, 'p', payload, 't', topic) end
  return add('XADD', log, 'NOMKSTREAM', 'MAXLEN', '=', max, at, 'n', name, 'p', payload, 't', topic)
end

-- What a quick way was given and could not finish with.
local streams
