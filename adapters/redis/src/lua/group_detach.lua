-- group, consumer, whether what is pending is given back
local group, consumer, release = ARGV[ARG + 1], ARGV[ARG + 2], ARGV[ARG + 3] == '1'
local plan, no = S.bind()
if not plan then return no end
no = S.members_fault(plan, group)
if no then return no end
local deleted = true
if not no_group(plan, group) then
  if release then S.release(plan, group, consumer) end
  deleted = #redis.call('XPENDING', plan.keys.log, group, '-', '+', 1, consumer) == 0
  if deleted then redis.call('XGROUP', 'DELCONSUMER', plan.keys.log, group, consumer) end
end
S.forget(plan, group, consumer)
return done(plan, deleted and '1' or '0')
