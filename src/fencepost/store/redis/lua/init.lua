-- A store is made, unless there is one. Its first incarnation is the day, so that tokens outrank those of a store that
-- was here before, even if nobody remembers it.
-- ARGV: prefix, now, steady, history, incarnation (empty: the days since 2025), schema, run of the server, history
-- that the caller remembers, 1 to make the store if there is none (0: the history in the reply is nil)
local p = ARGV[1]
if ARGV[9] == '0' and redis.call('HEXISTS', p .. ':leader', 'history') == 0 then
  return {false, false, false, false}
end
if redis.call('HEXISTS', p .. ':leader', 'history') == 0 then
  local incarnation, server = ARGV[5], ''
  if incarnation == '' then
    server = ARGV[7]
    incarnation = whole(math.floor(moment(ARGV[2], ARGV[3]) / 86400000000) - 20088)
  end
  redis.call('HSET', p .. ':leader', 'history', ARGV[4], 'edition', 1, 'holder', '', 'term', 0, 'renewals', 0,
    'ttl', 0, 'heartbeat', 0, 'expires', 0, 'incarnation', incarnation, 'standing', 'settled', 'lost_through', '',
    'server', server)
  redis.call('HSET', p .. ':meta', 'schema', ARGV[6], 'run', ARGV[7])
end
local meta = redis.call('HMGET', p .. ':meta', 'schema', 'run', 'gone:' .. ARGV[8])
return {redis.call('HGET', p .. ':leader', 'history'), meta[1], meta[2], meta[3]}
