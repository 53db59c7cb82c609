-- after, at most
local plan, no = S.bind()
if not plan then return no end
S.commit(plan)
local after, most, key = ARGV[ARG + 1], ARGV[ARG + 2], plan.keys.log
local entries = {}
if after ~= LAST .. '-' .. LAST then entries = redis.call('XRANGE', key, '(' .. after, '+', 'COUNT', most) end
local _, added, kept = facts(key)
local anchored = #entries > 0 and kept_before(key, entries[1][1])
return done(plan, entries, added, kept, anchored and '1' or '0')
