local plan, no = S.bind()
if not plan then return no end
if plan.life.state == 'destroyed' then return done(plan, '0') end
S.destroy(plan)
return done(plan, '1')
