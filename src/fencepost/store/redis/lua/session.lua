-- Notes that a replica was subscribed to its channel on this run of the server, if it is. 1: it is noted.
-- ARGV: prefix, replica, its channel, run of the server
local key = ARGV[1] .. ':replica:' .. ARGV[2]
if redis.call('EXISTS', key) == 0 or redis.call('PUBSUB', 'NUMSUB', ARGV[3])[2] == 0 then return 0 end
redis.call('HSET', key, 'session', ARGV[4])
return 1
