-- How a careful step begins: the time, the lease, everybody's presence.
-- ARGV: prefix, now, steady
local p = ARGV[1]
local now, steady = moment(ARGV[2], ARGV[3])
local replicas = {}
for _, id in ipairs(redis.call('SMEMBERS', p .. ':replicas')) do
  local row = redis.call('HMGET', p .. ':replica:' .. id, unpack(REPLICA))
  row[1] = id
  replicas[#replicas + 1] = row
end
return {whole(now), seconds(steady), redis.call('HMGET', p .. ':leader', unpack(LEASE)), replicas}
