-- group, IDs
local group = ARGV[ARG + 1]
local plan, no = S.bind()
if not plan then return no end
no = S.read_fault(plan, group) or S.cursor_fault(plan, group)
if no then return no end
local count = 0
in_chunks(ARG + 2, #ARGV, function(from, to)
  count = count + redis.call('XACK', plan.keys.log, group, unpack(ARGV, from, to))
end)
if count == 0 then return done(plan, 0, '') end
return done(plan, count, S.set_cursor(plan, group, settled(plan, group)))
