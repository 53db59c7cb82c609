-- group, consumer, most
local group, consumer, most = ARGV[ARG + 1], ARGV[ARG + 2], ARGV[ARG + 3]
local plan, no = S.bind()
if not plan then return no end
-- What a quick way has read stood before no holes.
no = streams == nil and (S.missed_fault(plan, group) or S.read_fault(plan, group))
if no then return no end
local command = {'XREADGROUP', 'GROUP', group, consumer, 'COUNT', most, 'STREAMS', plan.keys.log, '>'}
if streams == nil then streams = redis.pcall(unpack(command)) end
if streams and streams.err then return no_group(plan, group) or redis.call(unpack(command)) end
local entries = streams and streams[1] and streams[1][2] or {}
if #entries == 0 then
  -- Redis makes a consumer only when it gives it something.
  redis.call('XGROUP', 'CREATECONSUMER', plan.keys.log, group, consumer)
end
return done(plan, entries, S.note_read(plan, group, entries, #entries < tonumber(most)))
