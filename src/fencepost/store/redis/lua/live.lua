-- Jobs with what lives of them: all fires up to the moment given (and as far as any of them has a row), and when
-- the next one is due. `first`: where in ARGV their ids begin.
local function with_live(p, upto, first)
  local found = {}
  for n = first, #ARGV do
    local id = ARGV[n]
    local hot = redis.call('HMGET', p .. ':hot:' .. id, unpack(HOT))
    if not hot[1] then
      found[#found + 1] = {}
    else
      local values = {}
      for m, name in ipairs(HOT) do values[name] = hot[m] end
      local bound = whole(math.max(upto, tonumber(values.reach) or 0))
      local live = redis.call('ZRANGEBYSCORE', p .. ':live:' .. id, '-inf', bound, 'WITHSCORES')
      local texts = {}
      if values.rows ~= '0' then
        for m = 1, #live, 2 do
          local place = id .. ':' .. live[m]
          texts[#texts + 1] = redis.call('GET', p .. ':job:' .. place)
          texts[#texts + 1] = redis.call('GET', p .. ':fire:' .. place)
        end
      end
      local following = redis.call('ZRANGEBYSCORE', p .. ':live:' .. id, '(' .. bound, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
      local target = string.match(values.group or '', '^[^:]+:(.*)$') or ''
      found[#found + 1] = {
        hot, redis.call('HGET', p .. ':jobs', id), live, texts, following[2] or false,
        redis.call('HGET', p .. ':targets', target),
      }
    end
  end
  return found
end
