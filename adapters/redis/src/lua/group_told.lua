-- group, up to which number
local group, through = ARGV[ARG + 1], ARGV[ARG + 2]
local plan, no = S.bind()
if not plan then return no end
no = S.missed_fault(plan, group)
if no then return no end
S.told(plan, group, through)
return done(plan)
