-- Reserves the place of a namespace that is about to be copied here: replicas refuse the format, and only the latest move
-- may write (`arrive`). A move that was cut off is taken over by the next one of the same history.
-- ARGV: prefix, format of a namespace that arrives, name of the move, history. Gives `reserved`, `complete` if this
-- history is here already, else `taken`.
local p = ARGV[1]
local here = redis.call('HGET', p .. ':leader', 'history')
local meta = redis.call('HMGET', p .. ':meta', 'schema', 'expected')
if here and meta[1] ~= ARGV[2] then return here == ARGV[4] and 'complete' or 'taken' end
if here and meta[2] ~= ARGV[4] then return 'taken' end
redis.call('HSET', p .. ':leader', 'history', 'arriving')
redis.call('HSET', p .. ':meta', 'schema', ARGV[2], 'run', '', 'expected', ARGV[4], 'move', ARGV[3])
return 'reserved'
