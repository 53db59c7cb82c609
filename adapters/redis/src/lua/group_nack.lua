-- group, consumer, delay in ms, most that are put off, IDs
local group, consumer, delay, most = ARGV[ARG + 1], ARGV[ARG + 2], tonumber(ARGV[ARG + 3]), tonumber(ARGV[ARG + 4])
local plan, no = S.bind()
if not plan then return no end
no = S.later_fault(plan, group) or no_group(plan, group)
if no then return no end
local list, count = S.later(plan, group), 0
for i = ARG + 5, #ARGV do
  local id = ARGV[i]
  if held(plan, group, id, consumer) and S.put_off(plan, group, list, id, delay, most) then count = count + 1 end
end
S.put_later(plan, group, list)
return done(plan, count)
