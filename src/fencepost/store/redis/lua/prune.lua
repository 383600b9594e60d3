-- Forgets final fires that ended before a moment, among those due in one minute.
-- ARGV: prefix, before, minute, cursor
local p, before, minute = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local start = tonumber(minute) * 60000000
local low, high = whole(start), '(' .. whole(start + 60000000)
local page = redis.call('SSCAN', p .. ':minute:' .. minute, ARGV[4], 'COUNT', 500)
local gone = 0
for _, id in ipairs(page[2]) do
  local done, dropped = p .. ':done:' .. id, 0
  local rows = redis.call('ZRANGEBYSCORE', done, low, high, 'WITHSCORES')
  for n = 1, #rows, 2 do
    -- Of one that cannot be read it is only known when it was due.
    if (finished_of(rows[n]) or tonumber(rows[n + 1])) < before then
      redis.call('ZREM', done, rows[n])
      redis.call('ZREM', p .. ':stretches', id .. ':' .. rows[n + 1])
      local by_hand = string.match(rows[n], '"m":"(![^"]*)"}$') or string.match(rows[n], '"m":"(![^"]*)"}\n')
      if by_hand then redis.call('HDEL', p .. ':manual', id .. by_hand) end
      dropped = dropped + 1
    end
  end
  if dropped > 0 then redis.call('HINCRBY', p .. ':hot:' .. id, 'edition', 1) end
  gone = gone + dropped
  if 2 * dropped == #rows and redis.call('ZCOUNT', p .. ':live:' .. id, low, high) == 0 then
    redis.call('SREM', p .. ':minute:' .. minute, id)
  end
end
if page[1] == '0' and redis.call('EXISTS', p .. ':minute:' .. minute) == 0 then
  redis.call('ZREM', p .. ':minutes', minute)
end
return {gone, page[1]}
