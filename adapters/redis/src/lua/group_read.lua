-- group, consumer, most
local group, consumer, most = ARGV[ARG + 1], ARGV[ARG + 2], ARGV[ARG + 3]
local plan, no = S.bind()
if not plan then return no end
no = no_group(plan, group)
if no then return no end
local streams = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', most, 'STREAMS', plan.keys.log, '>')
local entries = streams and streams[1] and streams[1][2] or {}
if #entries > 0 then
  S.was_read(plan, group, entries[#entries][1])
else
  -- Redis makes a consumer only when it gives it something.
  redis.call('XGROUP', 'CREATECONSUMER', plan.keys.log, group, consumer)
end
return done(plan, entries)
