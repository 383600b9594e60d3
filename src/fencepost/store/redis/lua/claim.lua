-- Claims what is plainly due: fires of a job of which nothing is running or waiting, neither late nor in a gap. If
-- several are due and the job's overlap is "skip", the first is claimed and the others are skipped, as one row. Of what
-- is not so plain it says only that it is there, and keeps it for this caller, for a moment: the careful path decides
-- it, and replicas that come together shall not all decide the same.
-- ARGV: prefix, now, steady, replica, number, room, most jobs, term (empty: it does not lead), incarnation, the
-- first token of that incarnation, the start of the server that began it, how many of the next looks to list, jobs that
-- are set aside by this process
local p, replica, number, room = ARGV[1], ARGV[4], ARGV[5], tonumber(ARGV[6])
local now, steady = moment(ARGV[2], ARGV[3])

local me = redis.call('HMGET', p .. ':replica:' .. replica, 'edition', 'claim_no', 'renewals', 'steps', 'ttl', 'draining')
local lease = redis.call('HMGET', p .. ':leader', 'holder', 'term', 'incarnation', 'standing', 'lost_through', 'server')
for n = 1, 5 do if not (me[n] and tonumber(me[n])) then return {0} end end
if lease[5] ~= '' and not tonumber(lease[5] or '') then return {0} end
if tonumber(number) <= tonumber(me[2]) or me[6] ~= '0' or lease[3] ~= ARGV[9] or lease[6] ~= ARGV[11]
  or lease[4] ~= 'settled' then
  return {0}
end
local leads = lease[1] == replica and lease[2] == ARGV[8]
local lost_through = tonumber(lease[5]) or -1
local row = string.format(' {"r":"%s","n":%s,"a":1,"s":%s}', replica, number, whole(now))

local KEPT = 500000

-- What is due of a job besides the first, if all of it is to be skipped.
local function more_due(id)
  local due = redis.call('ZRANGEBYSCORE', p .. ':live:' .. id, '-inf', whole(now), 'WITHSCORES', 'LIMIT', 0, 101)
  return #due <= 200 and due or nil
end

local function skip(id, first, due)
  local second, last, count = due[3], due[#due], #due / 2 - 1
  local several = count > 1 and string.format(',"c":%d,"l":%s', count, last) or ''
  local text = string.format('0 {"st":"skipped","f":%s,"why":"overlap","to":"%s@%s"%s,"m":"%s"}',
    whole(now), id, first, several, second)
  local members = {}
  for n = 3, #due, 2 do members[#members + 1] = due[n] end
  redis.call('ZREM', p .. ':live:' .. id, unpack(members))
  redis.call('ZADD', p .. ':done:' .. id, due[4], text)
  if count > 1 then redis.call('ZADD', p .. ':stretches', last, id .. ':' .. due[4]) end
  redis.call('HSET', p .. ':hot:' .. id, 'tail', id .. '@' .. second)
  return {due[4], text}
end

local aside, set_aside = {}, #ARGV - 12
for n = 13, #ARGV do aside[ARGV[n]] = true end
-- The first of all that are sound; without a limit, of each priority.
local function sound_looks(upto, limit)
  local found = looks(p, replica, leads, upto, (limit or 1) + set_aside)
  if set_aside == 0 and #found <= (limit or #found) then return found end
  local sound = {}
  for _, job in ipairs(found) do
    if not aside[job.id] and #sound < (limit or #found) then sound[#sound + 1] = job end
  end
  return sound
end

local due = sound_looks(whole(now), tonumber(ARGV[7]))
local claims, others, rows, held, kept = {}, {}, {}, {}, {}
local later, groups, seen = {}, {}, {}
local claimed, promised, passed = 0, 0, 0

for place, job in ipairs(due) do
  if room > 0 and claimed >= room then break end
  local id = job.id
  local hot = redis.call('HMGET', p .. ':hot:' .. id, 'edition', 'token', 'decided', 'rows', 'plain', 'late', 'text', 'skips',
    'reach')
  local head = redis.call('ZRANGE', p .. ':live:' .. id, 0, 1, 'WITHSCORES')
  local at, following, from = tonumber(head[2]), tonumber(head[4]), tonumber(hot[5] or '')
  -- Numbers that are none: the careful path says what is wrong with the job.
  local sound = tonumber(hot[1] or '') and tonumber(hot[6] or '') and string.match(hot[2] or '', '^%d+$')
  local token = sound and next_token(hot[2], ARGV[10])
  local plain = sound and hot[4] == '0' and at and at <= now
    and now - at <= tonumber(hot[6]) and from and from <= at and from <= now and at > lost_through and token
  local more = plain and following and following <= now
  if more then
    more = hot[8] == '1' and (tonumber(hot[3]) or 0) < at and more_due(id)
    plain = more and true
  end
  if plain and room == 0 then
    -- It waits until somebody has room.
  elseif plain and claimed + promised < room then
    local decided, last = tonumber(hot[3]), head[2]
    local skipped = false
    if more then
      skipped, last = skip(id, head[1], more), more[#more]
      head[4] = redis.call('ZRANGEBYSCORE', p .. ':live:' .. id, '(' .. whole(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
      following = tonumber(head[4])
    end
    redis.call('HSET', p .. ':hot:' .. id, 'edition', tonumber(hot[1]) + 1, 'token', token,
      'decided', decided and decided > tonumber(last) and hot[3] or last, 'rows', 1, 'reach', head[2])
    local where, group = id .. ':' .. head[1], job.kind .. ':' .. job.target
    rows[#rows + 1] = p .. ':job:' .. where
    rows[#rows + 1] = token .. row
    held[#held + 1] = where
    if following then
      redis.call('ZADD', p .. ':look:' .. group, head[4], id)
    else
      redis.call('ZREM', p .. ':look:' .. group, id)
    end
    if job.only and following then
      local members = later[job.kind] or {}
      later[job.kind] = members
      members[#members + 1] = head[4]
      members[#members + 1] = id .. '\t' .. job.target
    elseif not seen[group] then
      seen[group] = true
      groups[#groups + 1] = group
    end
    claimed = claimed + 1
    claims[claimed] = {place, id, head[1], head[2], token, hot[7], skipped}
  else
    local decided_until = tonumber(redis.call('ZSCORE', p .. ':deciding', id) or 0)
    if decided_until > now and decided_until <= now + KEPT then
      passed = passed + 1 -- somebody else is at it
    else
      -- Who comes first is served first: what this job may claim at the most is left free for it.
      local upto = math.max(now, tonumber(hot[9] or '') or 0)
      promised = promised + redis.call('ZCOUNT', p .. ':live:' .. id, '-inf', whole(upto))
      others[#others + 1] = {place, id}
      kept[#kept + 1] = whole(now + KEPT)
      kept[#kept + 1] = id
    end
  end
end

if claimed > 0 then
  redis.call('MSET', unpack(rows))
  redis.call('SADD', p .. ':held:' .. replica, unpack(held))
  for kind, members in pairs(later) do
    redis.call('ZADD', p .. ':look:' .. kind, unpack(members))
  end
  refresh(p, groups)
end
if kept[1] then
  redis.call('ZREMRANGEBYSCORE', p .. ':deciding', '-inf', whole(now))
  redis.call('ZADD', p .. ':deciding', unpack(kept))
end
-- A claim is a sign of life.
local steps = tonumber(me[4]) + 1
redis.call('HSET', p .. ':replica:' .. replica, 'edition', tonumber(me[1]) + 1, 'claim_no', number,
  'renewals', tonumber(me[3]) + 1, 'steps', steps, 'expires', seconds(steady + tonumber(me[5])))

local wake_in, ahead = nil, {}
if ARGV[12] ~= '0' then ahead = looks_ahead(p, replica, leads, tonumber(ARGV[12]), aside, set_aside) end
if ahead[1] then
  wake_in = math.max(0, tonumber(ahead[1]) - now)
else
  for _, job in ipairs(sound_looks('+inf')) do wake_in = math.min(wake_in or math.huge, math.max(0, job.look - now)) end
end
if wake_in == 0 then ahead = {} end
if passed > 0 and claimed == 0 and #others == 0 then wake_in = math.max(wake_in, 20000) end
return {1, whole(now), steps, wake_in and whole(wake_in) or false, claims, others, ahead}
