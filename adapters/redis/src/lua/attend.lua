local plan, no = S.bind()
if not plan then return no end
S.commit(plan)
return done(plan, exists(plan.keys.log) and last_id(plan.keys.log) or '0-0')
