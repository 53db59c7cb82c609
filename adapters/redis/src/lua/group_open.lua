-- group, settled (or ""), then the five fields of the contract
local group, known = ARGV[ARG + 1], ARGV[ARG + 2]
local values = {ARGV[ARG + 3], ARGV[ARG + 4], ARGV[ARG + 5], ARGV[ARG + 6], ARGV[ARG + 7]}
local plan, no = S.bind()
if not plan then return no end
local made_anew = is_anew(plan)
if not made_anew and not S.group_fits(plan, group, values) then return refuse('SINKCONFIGMISMATCH') end
no = not made_anew and S.missed_fault(plan, group)
if no then return no end
S.commit(plan)
local key = plan.keys.log
local was_absent = not exists(key)
local cursor = S.cursor(plan, group)
local at = cursor or (known ~= '' and known) or nil
local start = at or values[3]
-- Nobody has come past the start that was asked for: it is as at first, and moves no log.
local only_wishes = at == values[3]
if was_absent then
  local floor = S.highest_cursor(plan)
  if at and not only_wishes and id_less(floor, at) then floor = at end
  make_log(key, floor)
  if at and id_less(at, floor) then start = floor end
elseif at and not only_wishes and id_less(last_id(key), at) then
  -- Settled in a log that is gone, under a clock that was ahead: all that is here is new.
  start = '0-0'
end
local made = redis.pcall('XGROUP', 'CREATE', key, group, start)
if made.err and string.sub(made.err, 1, 9) ~= 'BUSYGROUP' then return redis.call('XGROUP', 'CREATE', key, group, start) end
if not made.err then
  local last, added, kept = facts(key)
  if start == '$' then start = last elseif start == '0' then start = '0-0' end
  local seen
  if start == '0-0' then seen = added - kept elseif start == last then seen = added end
  S.was_read(plan, group, start, seen)
  -- Made again: unless something settled is still kept, nobody can tell that this is the log in which the
  -- group had events.
  local oldest = cursor and oldest_kept(key)
  if cursor and (not oldest or id_less(cursor, oldest)) then
    S.miss(plan, group, 'lost', cursor, '', '')
  end
end
if not cursor then cursor = S.set_cursor(plan, group, settled(plan, group)) end
S.put_group(plan, group, values)
touch(plan)
return done(plan, was_absent and '1' or '0', cursor)
