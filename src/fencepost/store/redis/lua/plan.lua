-- Writes plans that only add fires ahead: of a job with one calendar, without end or gap.
-- ARGV: prefix, now, steady, first due of all, then per plan: job id, version, cursor, next, number of fires, and
-- per fire: due, moment
local p = ARGV[1]
local now = moment(ARGV[2], ARGV[3])
local before, minutes = soonest_of_all(p), {}
local others, groups, number, at = {}, {}, 0, 5

while at <= #ARGV do
  local id, version, cursor, following, fires = unpack(ARGV, at, at + 4)
  local first, last = at + 5, at + 4 + 2 * tonumber(fires)
  local hot = redis.call('HMGET', p .. ':hot:' .. id, 'edition', 'segment', 'cursor', 'plain', 'decided', 'group')
  local plain = tonumber(hot[1] or '') and hot[2] == version and hot[3] == cursor
    and hot[6] and tonumber(hot[4] or '') and tonumber(hot[4]) <= now
    and tonumber(following) > now and (first > last or tonumber(ARGV[first]) > (tonumber(hot[5]) or 0))
  if plain then
    redis.call('HSET', p .. ':hot:' .. id, 'edition', tonumber(hot[1]) + 1, 'next', following,
      'cursor', first <= last and ARGV[last - 1] or cursor)
    redis.call('ZADD', p .. ':plan', following, id)
    if first <= last then
      redis.call('ZADD', p .. ':live:' .. id, unpack(ARGV, first, last))
      local known
      for n = first, last, 2 do
        local minute = math.floor(tonumber(ARGV[n]) / 60000000)
        if minute ~= known then
          known = minute
          minutes[minute] = minutes[minute] or {}
          table.insert(minutes[minute], id)
        end
      end
      if redis.call('ZADD', p .. ':look:' .. hot[6], 'LT', 'CH', ARGV[first], id) == 1 then
        groups[#groups + 1] = hot[6]
      end
    end
  else
    others[#others + 1] = number
  end
  number, at = number + 1, last + 1
end

for minute, ids in pairs(minutes) do
  redis.call('SADD', p .. ':minute:' .. minute, unpack(ids))
  redis.call('ZADD', p .. ':minutes', minute, minute)
end
refresh(p, groups)
-- What is due already may wait for a pool without a replica: it does not say when replicas will ask next.
if ARGV[4] ~= '' and (not before or before <= now or tonumber(ARGV[4]) < before) then redis.call('PUBLISH', p .. ':hint', '') end
return others
