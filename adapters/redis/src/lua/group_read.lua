-- group, consumer, most
local group, consumer, most = ARGV[ARG + 1], ARGV[ARG + 2], ARGV[ARG + 3]
local plan, no = S.bind()
if not plan then return no end
no = S.books_fault(plan, group) or no_group(plan, group)
if no then return no end
local streams = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', most, 'STREAMS', plan.keys.log, '>')
local entries = streams and streams[1] and streams[1][2] or {}
if #entries == 0 then
  -- Redis makes a consumer only when it gives it something.
  redis.call('XGROUP', 'CREATECONSUMER', plan.keys.log, group, consumer)
end
local last, added, kept = facts(plan.keys.log)
local caught_up = #entries < tonumber(most)
local reached = caught_up and last or entries[#entries][1]
S.note_read(plan, group, entries, caught_up, added, kept)
return done(plan, entries, reached, S.missed(plan, group))
