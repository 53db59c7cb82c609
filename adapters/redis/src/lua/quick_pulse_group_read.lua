local log = quick_log()
if log then
  local most = tonumber(ARGV[ARG + 3])
  streams = redis.pcall('XREADGROUP', 'GROUP', ARGV[ARG + 1], ARGV[ARG + 2], 'COUNT', most, 'STREAMS', log, '>')
  local entries = streams and streams[1] and streams[1][2]
  if entries and #entries == most then return {'same', US, entries, entries[most][1], {}} end
end
