-- group, owner, fence, lease in ms, grace in ms
local group, owner, fence, lease_ms = ARGV[ARG + 1], ARGV[ARG + 2], ARGV[ARG + 3], ARGV[ARG + 4]
local silent = tonumber(ARGV[ARG + 5]) * 2000
local plan, no = S.bind()
if not plan then return no end
no = lease_fault(plan, group, owner, fence) or no_group(plan, group)
if no then return no end
local key, now_us = plan.keys.log, tonumber(US)
local known, pending = S.everybody(plan, group), {}
for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', key, group)) do
  local name = info[2]
  -- The shelf is nobody who could be silent.
  if name ~= '=' then
    pending[name] = info[4]
    known[name] = known[name] or {us = false}
  end
end
local names = {}
for name in pairs(known) do names[#names + 1] = name end
table.sort(names)
local removed, malformed = {}, {}
for _, name in ipairs(names) do
  local member = known[name]
  if member.bad then
    malformed[#malformed + 1] = name
  elseif not member.us or now_us - member.us > silent then
    if pending[name] == 0 then redis.call('XGROUP', 'DELCONSUMER', key, group, name) end
    S.forget(plan, group, name)
    removed[#removed + 1] = name
  end
end
renew(plan, group, owner, lease_ms)
return done(plan, removed, malformed)
