-- group, owner, lease in ms
local group, owner, lease_ms = ARGV[ARG + 1], ARGV[ARG + 2], ARGV[ARG + 3]
local plan, no = S.bind()
if not plan then return no end
local lease = S.lease(plan, group)
local valid = lease and NOW < tonumber(lease.till)
if valid and lease.owner ~= owner then return done(plan, '0', lease.fence) end
local fence = valid and lease.fence or S.raise_fence(plan, group)
renew(plan, group, owner, lease_ms)
return done(plan, '1', fence)
