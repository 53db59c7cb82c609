-- behind which name ("" from the first), most groups
local after, most = ARGV[ARG + 1], tonumber(ARGV[ARG + 2])
local plan, no = S.bind()
if not plan then return no end

-- By bytes: a server compares text by the rules of its language.
local function name_less(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

local names = {}
for _, name in ipairs(S.group_names(plan)) do
  if name_less(after, name) then names[#names + 1] = name end
end
table.sort(names, name_less)

local key = plan.keys.log
local is_log = redis.call('TYPE', key).ok == 'stream'
local _, added = '', 0
if is_log then _, added = facts(key) end

-- How many entries each consumer of a group has not settled.
local function pending_of_each(group)
  local each = {}
  for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', key, group)) do each[info[2]] = info[4] end
  return each
end

local function members_of(group, each)
  local list, now_us = {}, tonumber(US)
  for name, member in pairs(S.everybody(plan, group)) do
    local silent = member.us and text_of(math.max(0, math.floor((now_us - member.us) / 1000))) or ''
    list[#list + 1] = {name, silent, each[name] or 0}
  end
  return list
end

local function state(group)
  local values, broken = S.contract_of(plan, group)
  broken = broken or S.members_fault(plan, group) or S.missed_fault(plan, group)
    or S.later_fault(plan, group)
  if broken then return nil, broken end
  local delivered, lag, pending, oldest, each = '', '', 0, {}, {}
  if is_log and has_group(key, group) then
    delivered, pending = S.delivered(plan, group), redis.call('XPENDING', key, group)[1]
    local seen = S.seen(plan, group)
    lag = seen and text_of(math.max(0, added - seen)) or ''
    oldest = redis.call('XPENDING', key, group, '-', '+', 1)[1] or {}
    each = pending_of_each(group)
  end
  return {
    group, values or {}, S.cursor(plan, group) or '', delivered, lag, pending, oldest, members_of(group, each),
    S.fence(plan, group), #S.later(plan, group), #S.missed(plan, group),
  }
end

local rows = {}
for at = 1, math.min(#names, most) do
  local row, broken = state(names[at])
  if not row then return broken end
  rows[at] = row
end
return done(plan, rows, #names > most and '1' or '0')
