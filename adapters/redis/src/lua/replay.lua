-- after, most events, most bytes
local after, events, bytes = ARGV[ARG + 1], tonumber(ARGV[ARG + 2]), tonumber(ARGV[ARG + 3])
if S.replay_fault then
  local fault = S.replay_fault()
  if fault then return fault end
end
local plan, no = S.bind()
if not plan then return no end
local key = plan.keys.log

-- An entry that is exactly an event, with what it costs; or a refusal.
local function measured(entry)
  local seen, cost, count = {}, #entry[1], 0
  for i = 1, #entry[2], 2 do
    local field, value = entry[2][i], entry[2][i + 1]
    local known = field == 'n' or field == 'p' or field == 't'
    if not known or seen[field] or (field == 'n' and value == '') then
      return nil, refuse('REPLAYMALFORMED ' .. entry[1])
    end
    seen[field] = true
    cost = cost + #value
  end
  if not seen.n or not seen.p then return nil, refuse('REPLAYMALFORMED ' .. entry[1]) end
  return cost
end

local function too_large(cost)
  return refuse('REPLAYEVENTTOOLARGE ' .. text_of(cost) .. ' ' .. text_of(bytes))
end

local anchor = {}
if after ~= '0-0' then
  anchor = redis.call('XRANGE', key, after, after)
  if not anchor[1] then return refuse('REPLAYPOSITIONUNAVAILABLE') end
  local cost, fault = measured(anchor[1])
  if fault then return fault end
  if cost > bytes then return too_large(cost) end
end
local entries, left, from = {}, bytes, after
while #entries < events and from ~= LAST .. '-' .. LAST do
  -- A few at a time: the next one may be as large as the whole batch may be.
  local some = redis.call('XRANGE', key, '(' .. from, '+', 'COUNT', math.min(16, events - #entries))
  for _, entry in ipairs(some) do
    local cost, fault = measured(entry)
    if fault then return fault end
    if cost > left then
      if #entries == 0 then return too_large(cost) end
      return done(plan, anchor, entries)
    end
    left = left - cost
    entries[#entries + 1] = entry
    from = entry[1]
  end
  if #some == 0 then break end
end
return done(plan, anchor, entries)
