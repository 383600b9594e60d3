-- The scheduled fires of a job that are due after the moment given, with their rows; and when the first one
-- by hand is due.
-- ARGV: prefix, id, after
local p, id = ARGV[1], ARGV[2]
local live = redis.call('ZRANGEBYSCORE', p .. ':live:' .. id, '(' .. ARGV[3], '+inf', 'WITHSCORES')
local found, texts, by_hand = {}, {}, false
for n = 1, #live, 2 do
  if string.sub(live[n], 1, 1) ~= '!' then
    local place = id .. ':' .. live[n]
    found[#found + 1] = live[n]
    found[#found + 1] = live[n + 1]
    texts[#texts + 1] = redis.call('GET', p .. ':job:' .. place)
    texts[#texts + 1] = redis.call('GET', p .. ':fire:' .. place)
  else
    by_hand = by_hand or live[n + 1]
  end
end
return {found, texts, by_hand}
