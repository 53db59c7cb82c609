-- after, at most
local plan, no = S.bind()
if not plan then return no end
local after, most = ARGV[ARG + 1], ARGV[ARG + 2]
if after == LAST .. '-' .. LAST then return done(plan, {}) end
return done(plan, redis.call('XRANGE', plan.keys.dead, '(' .. after, '+', 'COUNT', most))
