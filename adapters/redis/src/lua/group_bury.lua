-- group, consumer, most dead letters, IDs
local group, consumer, most = ARGV[ARG + 1], ARGV[ARG + 2], tonumber(ARGV[ARG + 3])
local plan, no = S.bind()
if not plan then return no end
local key, dead = plan.keys.log, plan.keys.dead
if redis.call('XLEN', dead) + #ARGV - ARG - 3 > most then return refuse('DEADFULL') end
no = no_group(plan, group) or S.read_fault(plan, group) or S.cursor_fault(plan, group)
if no then return no end
local count = 0
for i = ARG + 4, #ARGV do
  local id = ARGV[i]
  local entry, given = held(plan, group, id, consumer)
  -- What somebody else wrote with more fields than one command takes stays where it is.
  if entry and #entry[2] < 7000 then
    local args = {'XADD', dead, MS .. '-*', 'g', group, 'i', id, 'c', given}
    for _, text in ipairs(entry[2]) do args[#args + 1] = text end
    add_behind(dead, args, 3)
    redis.call('XACK', key, group, id)
    count = count + 1
  end
end
if plan.C.deadline then redis.call('PEXPIREAT', dead, plan.C.deadline) end
if count == 0 then return done(plan, 0, '') end
return done(plan, count, S.set_cursor(plan, group, settled(plan, group)))
