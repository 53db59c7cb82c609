local plan, no = S.bind()
if not plan then return no end
if not plan.C then return refuse('STREAMCONFIGMISSING') end
if plan.C.max == '0' then return refuse('SNAPSHOTUNBOUNDED') end
no = elapsed(plan.C)
if no then return no end
local max = tonumber(plan.C.max)
if redis.call('XLEN', plan.keys.log) > max then return refuse('SNAPSHOTBOUNDVIOLATION ' .. plan.C.max) end
return done(plan, redis.call('XRANGE', plan.keys.log, '-', '+'))
