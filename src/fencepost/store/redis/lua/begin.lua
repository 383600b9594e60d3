-- How a step of the general path begins: the time, the lease, the presence of all replicas; and what it is known to need:
-- these jobs, and the first of those to be decided by a replica (if it is the leader in this term: leader-only ones too).
-- ARGV: prefix, now, steady, replica, term, how many to be decided, ids of jobs
local p, replica = ARGV[1], ARGV[4]
local now, steady = moment(ARGV[2], ARGV[3])
local replicas, first = {}, {}
for _, id in ipairs(redis.call('SMEMBERS', p .. ':replicas')) do
  local row = redis.call('HMGET', p .. ':replica:' .. id, unpack(REPLICA))
  row[1] = id
  replicas[#replicas + 1] = row
end
local lease = redis.call('HMGET', p .. ':leader', unpack(LEASE))
local values = {}
for n, name in ipairs(LEASE) do values[name] = lease[n] end
local leads = values.holder == replica and (ARGV[5] == '' or values.term == ARGV[5])
if replica ~= '' then
  for _, each in ipairs(looks(p, replica, leads, '+inf', tonumber(ARGV[6]))) do
    first[#first + 1] = each.id
    first[#first + 1] = whole(each.look)
    first[#first + 1] = each.priority
    first[#first + 1] = leader_only(each)
  end
end
return {whole(now), seconds(steady), lease, replicas, with_live(p, now, 7), first, leads and 1 or 0}
