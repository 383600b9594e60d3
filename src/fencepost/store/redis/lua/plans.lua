-- Jobs whose calendars must be expanded.
-- ARGV: prefix, now, steady, horizon in microseconds, limit
local p = ARGV[1]
local now = moment(ARGV[2], ARGV[3])
local jobs, gaps, asked = {}, {}, {}
local due = redis.call('ZRANGEBYSCORE', p .. ':plan', '-inf', whole(now + tonumber(ARGV[4])), 'LIMIT', 0, ARGV[5])
for _, id in ipairs(due) do
  local hot = redis.call('HMGET', p .. ':hot:' .. id, unpack(HOT))
  jobs[#jobs + 1] = {id, hot}
  for n, name in ipairs(HOT) do
    if name == 'group' then
      local target = string.match(hot[n], '^%a+:(.*)$')
      if not asked[target] then
        asked[target] = true
        local row = redis.call('HGET', p .. ':targets', target)
        if row and string.find(row, '"gaps"', 1, true) then gaps[#gaps + 1] = row end
      end
    end
  end
end
local first = redis.call('ZRANGE', p .. ':plan', 0, 0, 'WITHSCORES')
return {whole(now), first[2] or false, jobs, gaps, redis.call('HGET', p .. ':leader', 'lost_through')}
