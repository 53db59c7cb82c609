-- group, consumer, most members
local group, consumer, most = ARGV[ARG + 1], ARGV[ARG + 2], tonumber(ARGV[ARG + 3])
local plan, no = S.bind()
if not plan then return no end
no = S.members_fault(plan, group) or S.has_room(plan, group, consumer, most)
if no then return no end
S.say_alive(plan, group, consumer)
return done(plan)
