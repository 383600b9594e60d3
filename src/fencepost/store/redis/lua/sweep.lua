-- A sweep that finds nobody who might be dead, no task that must be called unknown, and nothing owed.
-- ARGV: prefix, now, steady, by, term, then per suspect: id, renewals, seconds (empty: proven dead)
local p = ARGV[1]
local now, steady = moment(ARGV[2], ARGV[3])
local lease = redis.call('HMGET', p .. ':leader', unpack(LEASE))
for n, name in ipairs(LEASE) do lease[name] = lease[n] end
if lease.holder ~= ARGV[4] or lease.term ~= ARGV[5] or redis.call('ZCOUNT', p .. ':unknown', '-inf', whole(now)) > 0 then
  return {0}
end
if #redis.call('ZRANGEBYLEX', p .. ':entry_keys', '[owed/', '(owed0', 'LIMIT', 0, 1) > 0 then
  return {0}
end
for n = 6, #ARGV, 3 do
  local other = redis.call('HMGET', p .. ':replica:' .. ARGV[n], 'renewals', 'heartbeat')
  local heartbeat = tonumber(other[2] or '') or 0
  if other[1] and (ARGV[n + 2] == '' or (other[1] == ARGV[n + 1] and tonumber(ARGV[n + 2]) >= heartbeat)) then
    return {0}
  end
end
local replicas = {}
for _, id in ipairs(redis.call('SMEMBERS', p .. ':replicas')) do
  local row = redis.call('HMGET', p .. ':replica:' .. id, unpack(REPLICA))
  row[1] = id
  replicas[#replicas + 1] = row
end
return {1, whole(now), seconds(steady), redis.call('HMGET', p .. ':leader', unpack(LEASE)), replicas}
