-- group, owner, fence, lease in ms
local group, owner, fence, lease_ms = ARGV[ARG + 1], ARGV[ARG + 2], ARGV[ARG + 3], ARGV[ARG + 4]
local plan, no = S.bind()
if not plan then return no end
no = lease_fault(plan, group, owner, fence)
if no then return no end
renew(plan, group, owner, lease_ms)
return done(plan)
