-- group, owner, fence, lease in ms, consumer, idle in ms, from, most
local group, owner, fence, lease_ms = ARGV[ARG + 1], ARGV[ARG + 2], ARGV[ARG + 3], ARGV[ARG + 4]
local consumer, idle, from, most = ARGV[ARG + 5], ARGV[ARG + 6], ARGV[ARG + 7], ARGV[ARG + 8]
local plan, no = S.bind()
if not plan then return no end
no = lease_fault(plan, group, owner, fence) or S.missed_fault(plan, group) or S.later_fault(plan, group) or no_group(plan, group)
if no then return no end
S.ripen(plan, group)
-- A server makes the consumer only when there is something to take, or always, by its version.
redis.call('XGROUP', 'CREATECONSUMER', plan.keys.log, group, consumer)
local claim = redis.call('XAUTOCLAIM', plan.keys.log, group, consumer, idle, from, 'COUNT', most)
renew(plan, group, owner, lease_ms)
local counts = {}
for at, entry in ipairs(claim[2]) do
  counts[at] = redis.call('XPENDING', plan.keys.log, group, entry[1], entry[1], 1, consumer)[1][4]
end
local vanished = claim[3] or {}
if #vanished > 0 then
  S.miss(plan, group, 'pending', previous_id(vanished[1]), next_id(vanished[#vanished]), text_of(#vanished))
end
return done(plan, claim[1], claim[2], vanished, counts, S.missed(plan, group))
