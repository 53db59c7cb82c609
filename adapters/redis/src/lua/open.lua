local plan, no = S.bind()
if not plan then return no end
S.commit(plan)
return done(plan)
