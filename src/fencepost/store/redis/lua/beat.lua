-- A heartbeat that changes nothing but times and counts: not of a newcomer, nor one that leaves, nor one that might
-- take leadership from another, nor one that knows of something the store does not.
-- ARGV: prefix, now, steady, replica, number, ttl, heartbeat, leader's ttl (empty: it does not campaign),
-- seconds watched (empty: it has not), the term and the renewals watched, what it has seen: incarnation, server, term, steps; history
local p, replica, number = ARGV[1], ARGV[4], ARGV[5]
local now, steady = moment(ARGV[2], ARGV[3])
local key = p .. ':replica:' .. replica
local me = redis.call('HMGET', key, 'edition', 'beat_no', 'renewals', 'steps')
local lease = redis.call('HMGET', p .. ':leader', unpack(LEASE))
local held = {}
for n, name in ipairs(LEASE) do held[name] = lease[n] end
local steps = tonumber(me[4])
-- What cannot be read is for the careful path, too.
for n = 1, 4 do if not (me[n] and tonumber(me[n])) then return {0} end end
for _, name in ipairs({'edition', 'term', 'renewals', 'heartbeat'}) do
  if not (held[name] and tonumber(held[name])) then return {0} end
end
if held.lost_through ~= '' and not tonumber(held.lost_through or '') then return {0} end
if tonumber(number) <= tonumber(me[2]) or held.history ~= ARGV[16]
  or held.standing ~= 'settled' or held.incarnation ~= ARGV[12] or held.server ~= ARGV[13]
  or tonumber(ARGV[14]) > tonumber(held.term) or tonumber(ARGV[15]) > steps then
  return {0}
end
local campaigns, leads = ARGV[8] ~= '', held.holder == replica
if campaigns and not leads then
  if held.holder == '' then return {0} end
  -- Of many followers one takes over. For the others the lease is no longer the one they watched: they only renew.
  local same = ARGV[10] == held.term and ARGV[11] == held.renewals
  if ARGV[9] ~= '' and same and tonumber(ARGV[9]) >= tonumber(held.heartbeat) then return {0} end
end

steps = steps + 1
redis.call('HSET', key, 'edition', tonumber(me[1]) + 1, 'expires', seconds(steady + tonumber(ARGV[6])), 'ttl', ARGV[6],
  'heartbeat', ARGV[7], 'renewals', tonumber(me[3]) + 1, 'beat_no', number, 'steps', steps, 'draining', 0)
if campaigns and leads then
  redis.call('HSET', p .. ':leader', 'edition', tonumber(held.edition) + 1, 'renewals', tonumber(held.renewals) + 1,
    'ttl', ARGV[8], 'heartbeat', ARGV[7], 'expires', seconds(steady + tonumber(ARGV[8])))
  lease = redis.call('HMGET', p .. ':leader', unpack(LEASE))
end

local runs = {}
for _, place in ipairs(redis.call('SMEMBERS', p .. ':held:' .. replica)) do
  runs[#runs + 1] = place
  runs[#runs + 1] = redis.call('GET', p .. ':job:' .. place)
end
local peers, targets = {}, redis.call('HGET', key, 'targets')
for _, id in ipairs(redis.call('SMEMBERS', p .. ':replicas')) do
  local other = redis.call('HMGET', p .. ':replica:' .. id, 'targets', 'claim_no', 'draining', 'expires')
  if id ~= replica and other[1] == targets and (tonumber(other[2] or '') or 0) > 0 and other[3] == '0'
    and (tonumber(other[4] or '') or 0) > steady then
    peers[#peers + 1] = id
  end
end
return {1, whole(now), steps, lease, runs, peers}
