-- name, topic, payload, condition: none, "exists", or the position that must be the last.
local event = {name = ARGV[ARG + 1], topic = ARGV[ARG + 2], payload = ARGV[ARG + 3]}
local condition = ARGV[ARG + 4]
local plan, no = S.bind()
if not plan then return no end
if not plan.C then return refuse('STREAMCONFIGMISSING') end
if condition then
  if not exists(plan.keys.log) then return done(plan, '') end
  if condition ~= 'exists' and last_id(plan.keys.log) ~= condition then return done(plan, '') end
end
no = early_position_fault(plan)
if no then return no end
S.commit(plan)
local id
id, no = append(plan, event)
if no then return no end
touch(plan)
S.added(plan)
return done(plan, id)
