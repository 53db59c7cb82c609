local plan, no = S.bind()
if not plan then return no end
S.commit(plan)
local last, added = facts(plan.keys.log)
return done(plan, last, added)
