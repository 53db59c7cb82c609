-- group, consumer, most members
local group, consumer, most = ARGV[ARG + 1], ARGV[ARG + 2], tonumber(ARGV[ARG + 3])
local plan, no = S.bind()
if not plan then return no end
no = S.members_fault(plan, group) or S.has_room(plan, group, consumer, most) or no_group(plan, group)
if no then return no end
redis.call('XGROUP', 'CREATECONSUMER', plan.keys.log, group, consumer)
S.say_alive(plan, group, consumer)
return done(plan)
