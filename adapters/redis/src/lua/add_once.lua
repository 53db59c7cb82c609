-- key, name, topic, payload, digest
local key = ARGV[ARG + 1]
local event = {name = ARGV[ARG + 2], topic = ARGV[ARG + 3], payload = ARGV[ARG + 4], digest = ARGV[ARG + 5]}
local plan, no = S.bind()
if not plan then return no end
if not plan.C then return refuse('STREAMCONFIGMISSING') end
no = S.once_fault(plan)
if no then return no end
S.once_begin(plan)
local id
id, no = S.once_find(plan, key, event)
if no then return no end
if id then
  S.commit(plan)
  S.once_end(plan, false, touch)
  return done(plan, id, '0')
end
no = early_position_fault(plan) or S.once_room(plan)
if no then return position_fault(plan) or no end
S.commit(plan)
id, no = append(plan, event)
if no then return no end
S.once_put(plan, key, event, id)
S.once_end(plan, true, touch)
return done(plan, id, '1')
