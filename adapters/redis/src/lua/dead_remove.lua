-- IDs
local plan, no = S.bind()
if not plan then return no end
local count = 0
in_chunks(ARG + 1, #ARGV, function(from, to)
  count = count + redis.call('XDEL', plan.keys.dead, unpack(ARGV, from, to))
end)
return done(plan, count)
