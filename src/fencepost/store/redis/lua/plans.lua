-- Jobs whose calendars must be expanded.
-- ARGV: prefix, now, steady, horizon in microseconds, limit, jobs that are set aside
local p, limit = ARGV[1], tonumber(ARGV[5])
local now = moment(ARGV[2], ARGV[3])
local jobs, gaps, asked, aside, due = {}, {}, {}, {}, {}
for n = 6, #ARGV do aside[ARGV[n]] = true end
local set_aside = #ARGV - 5
local until_then = whole(now + tonumber(ARGV[4]))
for _, id in ipairs(redis.call('ZRANGEBYSCORE', p .. ':plan', '-inf', until_then, 'LIMIT', 0, limit + set_aside)) do
  if not aside[id] and #due < limit then due[#due + 1] = id end
end
for _, id in ipairs(due) do
  local hot = redis.call('HMGET', p .. ':hot:' .. id, unpack(HOT))
  jobs[#jobs + 1] = {id, hot}
  for n, name in ipairs(HOT) do
    if name == 'group' then
      local target = string.match(hot[n] or '', '^[^:]+:(.*)$') or ''
      if not asked[target] then
        asked[target] = true
        local row = redis.call('HGET', p .. ':targets', target)
        if row and string.find(row, '"gaps"', 1, true) then gaps[#gaps + 1] = {target, row} end
      end
    end
  end
end
local first, soonest = redis.call('ZRANGE', p .. ':plan', 0, set_aside, 'WITHSCORES'), false
for n = #first - 1, 1, -2 do if not aside[first[n]] then soonest = first[n + 1] end end
return {whole(now), soonest, jobs, gaps, redis.call('HGET', p .. ':leader', 'lost_through')}
