-- group, consumer
local group, consumer = ARGV[ARG + 1], ARGV[ARG + 2]
local plan, no = S.bind()
if not plan then return no end
no = S.members_fault(plan, group)
if no then return no end
local deleted = true
if not no_group(plan, group) then
  deleted = #redis.call('XPENDING', plan.keys.log, group, '-', '+', 1, consumer) == 0
  if deleted then redis.call('XGROUP', 'DELCONSUMER', plan.keys.log, group, consumer) end
end
S.forget(plan, group, consumer)
return done(plan, deleted and '1' or '0')
