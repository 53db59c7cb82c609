-- What every operation begins with: the arguments of the asker, and which generation the step is done on. The
-- layout's file, which follows, brings `S`, the storage.

local FLAGS = {string.byte(ARGV[4], 1, -1)}
local YES = string.byte('1')
local BOUND = FLAGS[1] == YES
-- `where` is the generation that the asker supposes; `name` and `nonce` are those of one layout each; `contract` is
-- what the asker is bound to, or wants.
local A = {
  where = ARGV[1], bound = BOUND and ARGV[1] or '', name = ARGV[2], nonce = ARGV[2], contract = ARGV[3],
  ended = FLAGS[2] == YES, explicit = FLAGS[3] == YES, creates = FLAGS[4] == YES, restores = FLAGS[5] == YES,
  check_contract = FLAGS[6] == YES, check_clock = FLAGS[7] == YES, wanted_first = FLAGS[8] == YES,
  destroys = FLAGS[9] == YES,
}
-- The most IDs for one command: Lua's stack ends near 8000.
local CHUNK = 1000

local function refuse(text) return {'no', US, text} end

-- The decimal after this one, digit by digit: a Lua number rounds above 2^53.
local function next_of(text)
  local at = #text
  while at > 0 and string.sub(text, at, at) == '9' do at = at - 1 end
  local zeros = string.rep('0', #text - at)
  if at == 0 then return '1' .. zeros end
  return string.sub(text, 1, at - 1) .. string.char(string.byte(text, at) + 1) .. zeros
end

-- The decimal before this one, which is not zero.
local function previous_of(text)
  local at = #text
  while string.sub(text, at, at) == '0' do at = at - 1 end
  local digit = string.char(string.byte(text, at) - 1)
  local less = string.sub(text, 1, at - 1) .. digit .. string.rep('9', #text - at)
  return (string.gsub(less, '^0(%d)', '%1'))
end

local LAST = '18446744073709551615'

local function previous_id(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  if seq ~= '0' then return ms .. '-' .. previous_of(seq) end
  if ms ~= '0' then return previous_of(ms) .. '-' .. LAST end
  return id
end

-- The position behind this one; empty at the end of all.
local function next_id(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  if seq ~= LAST then return ms .. '-' .. next_of(seq) end
  if ms ~= LAST then return next_of(ms) .. '-0' end
  return ''
end

local function is_decimal(text)
  return text == '0' or string.match(text, '^[1-9]%d*$') ~= nil
end

-- Digits that no shorter text stands for too, of a number that we count.
local function is_counted(digits)
  return (string.byte(digits) ~= 48 or digits == '0') and not decimal_less(LAST, digits)
end

-- Refuses a lifecycle record of which nobody can tell what generation it is about, or what the next one is.
local function generation_fault(generation)
  if not generation or is_decimal(generation) and generation ~= '0' and decimal_less(generation, LAST) then
    return nil
  end
  return refuse('SINKLIFECYCLEINVALID expected a generation, found ' .. generation)
end

-- A contract taken apart; nil when it is not canonical.
local function contract(text)
  local version, max, mode, value, sliding, rest =
    string.match(text, '^v=(%d+)|max=(%d+)|mode=(%a+)|value=(%d+)|sliding=(%a+)(.*)$')
  if not version or version ~= S_VERSION or not is_counted(max) or not is_counted(value) then return nil end
  if sliding ~= 'true' and sliding ~= 'false' then return nil end
  local C = {text = text, max = max, mode = mode, value = tonumber(value), sliding = sliding == 'true'}
  if mode == 'none' then
    if value ~= '0' or C.sliding then return nil end
  elseif mode == 'deadline' then
    if C.sliding then return nil end
    C.deadline = value
  elseif mode ~= 'ttl' or value == '0' then
    return nil
  end
  if S_VERSION == '1' then
    local once = string.match(rest, '^|once=(%d+)$')
    if not once or not is_counted(once) then return nil end
    C.once = tonumber(once)
  elseif rest ~= '' then
    return nil
  end
  return C
end

local function elapsed(C)
  if C and C.deadline and NOW >= tonumber(C.deadline) then
    return refuse('DEADLINEELAPSED ' .. C.deadline .. ' ' .. MS)
  end
end

-- Whether the step makes the generation out of nothing: what lies under its keys goes. The first one of the
-- Pulse layout adopts it.
local function is_anew(plan)
  return plan.write == 'make' and not (S_VERSION == '2' and plan.generation == '1')
end

-- What a bound asker knows already is not said again.
local function done(plan, ...)
  if A.bound ~= '' and plan.C and plan.C.text == A.contract then return {'same', US, ...} end
  return {'ok', US, plan.generation, plan.nonce or '', plan.C and plan.C.text or '', ...}
end

local function exists(key) return redis.call('EXISTS', key) == 1 end

-- The last position given out, how many entries were ever published, and how many are kept.
local function facts(key)
  local last, added, kept = '0-0', 0, 0
  local info = redis.pcall('XINFO', 'STREAM', key)
  if info.err then
    if not exists(key) then return last, added, kept end
    redis.call('XINFO', 'STREAM', key)
  end
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

-- Entries as flat as they are: ID, then the list of fields.
local function in_chunks(first, last, each)
  for from = first, last, CHUNK do
    each(from, math.min(from + CHUNK - 1, last))
  end
end
