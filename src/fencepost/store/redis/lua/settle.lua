-- Settles what ends plainly: the run has its token, and nothing else of its job is running or waiting, so nothing
-- follows from its end. Says which ones it could not.
-- ARGV: prefix, now, steady, replica, then per settlement: job id, moment, token, ending, second half of the last run,
-- state
local p, replica = ARGV[1], ARGV[4]
local now = moment(ARGV[2], ARGV[3])
local ended = '\n[' .. whole(now) .. ','
local others, gone, released, settled = {}, {}, {}, 0

-- What the job says of its last run from now on.
local function outcome(row, due, holder, half, state, failures)
  local run = '[' .. due .. ',' .. string.match(row, '"s":(%d+)') .. ',' .. whole(now) .. ',"' .. holder .. '",' .. half
  if state == 'succeeded' then return 'run', run, 'success', whole(now), 'failures', 0 end
  local failed = (state == 'failed' or state == 'lost') and 1 or 0
  return 'run', run, 'failures', (tonumber(failures) or 0) + failed
end

for n = 5, #ARGV, 6 do
  local id, member, token, ending = ARGV[n], ARGV[n + 1], ARGV[n + 2], ARGV[n + 3]
  local where = id .. ':' .. member
  local row = redis.call('GET', p .. ':job:' .. where)
  local hot = row and redis.call('HMGET', p .. ':hot:' .. id, 'edition', 'rows', 'next', 'plain', 'failures')
  local plain, holder, due = false, nil, nil
  if row and string.match(row, '^%d+') == token and hot[2] == '1' and tonumber(hot[1] or '') and tonumber(hot[4] or '') then
    due = redis.call('ZSCORE', p .. ':live:' .. id, member)
    holder = string.match(row, '^%d+ {"r":"([^"]*)"')
    local from, following = tonumber(hot[4]), tonumber(hot[3] or '')
    plain = holder and from <= now and tonumber(due) <= now and (not following or following > now)
  end
  if plain then
    redis.call('ZREM', p .. ':live:' .. id, member)
    redis.call('ZADD', p .. ':done:' .. id, due, row .. ended .. ending)
    redis.call('HSET', p .. ':hot:' .. id, 'edition', tonumber(hot[1]) + 1, 'rows', 0,
      outcome(row, due, holder, ARGV[n + 4], ARGV[n + 5], hot[5]))
    gone[#gone + 1] = p .. ':job:' .. where
    local places = released[holder] or {}
    released[holder], places[#places + 1] = places, where
    settled = settled + 1
  else
    others[#others + 1] = (n - 5) / 6
  end
end

if settled > 0 then redis.call('DEL', unpack(gone)) end
for holder, places in pairs(released) do redis.call('SREM', p .. ':held:' .. holder, unpack(places)) end

local key = p .. ':replica:' .. replica
local me = redis.call('HMGET', key, 'steps', 'draining')
if not me[1] then return {others, 0, false, false} end
local lease = redis.call('HMGET', p .. ':leader', 'holder', 'standing')
-- While it is doubtful whether writes were lost only heartbeats count, as in `rules/updates.py`.
local is_counted = settled > 0 and lease[2] == 'settled'
local steps = is_counted and redis.call('HINCRBY', key, 'steps', 1) or tonumber(me[1])
local soonest = me[2] == '0' and soonest_for(p, replica, lease[1] == replica)
return {others, steps, soonest and whole(math.max(0, soonest - now)) or false, soonest and whole(soonest) or false}
