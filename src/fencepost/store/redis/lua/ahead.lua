-- The fires of a job that are due after the moment given, with their rows.
-- ARGV: prefix, id, after
local p, id = ARGV[1], ARGV[2]
local live = redis.call('ZRANGEBYSCORE', p .. ':live:' .. id, '(' .. ARGV[3], '+inf', 'WITHSCORES')
local texts = {}
for n = 1, #live, 2 do
  local place = id .. ':' .. live[n]
  texts[#texts + 1] = redis.call('GET', p .. ':job:' .. place)
  texts[#texts + 1] = redis.call('GET', p .. ':fire:' .. place)
end
return {live, texts}
