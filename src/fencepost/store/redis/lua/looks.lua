-- When a job must be looked at. Two levels: <p>:look:<kind>:<target> has the jobs of one target. <p>:look:<kind> has
-- of each target the first, as "<job> <target>": its members are in the order in which jobs are served, and a target
-- that a replica does not know is passed over in one step, however many jobs it has. A tab in place of the space
-- says that the first is the only one, as it often is: then the other level need not be read. <p>:first remembers
-- which member a target has.
-- A kind is "any" or "leader" (for leader-only jobs); for jobs of another priority than 0 this follows: "any5", "leader-3".
-- <p>:priorities has those that jobs have or had, without 0.

-- After changes to the jobs of these groups ("<kind>:<target>").
local function refresh(p, groups)
  if not groups[1] then return end
  local before = redis.call('HMGET', p .. ':first', unpack(groups))
  for n, group in ipairs(groups) do
    local jobs = redis.call('ZRANGE', p .. ':look:' .. group, 0, 1, 'WITHSCORES')
    local kind, target = string.match(group, '^([^:]+):(.*)$')
    local member = jobs[1] and jobs[1] .. (jobs[3] and ' ' or '\t') .. target
    if before[n] and before[n] ~= member then redis.call('ZREM', p .. ':look:' .. kind, before[n]) end
    if member then
      redis.call('ZADD', p .. ':look:' .. kind, jobs[2], member)
      if before[n] ~= member then redis.call('HSET', p .. ':first', group, member) end
    elseif before[n] then
      redis.call('HDEL', p .. ':first', group)
    end
  end
end

local function earlier(one, other)
  if one.look ~= other.look then return one.look < other.look end
  return one.id < other.id
end

local function in_order(found)
  for n = 2, #found do
    if earlier(found[n], found[n - 1]) then
      table.sort(found, earlier)
      return
    end
  end
end

-- All priorities, the highest first.
local function priorities(p)
  local found = {0}
  for _, priority in ipairs(redis.call('SMEMBERS', p .. ':priorities')) do found[#found + 1] = tonumber(priority) end
  table.sort(found, function(one, other) return one > other end)
  return found
end

local function kinds_of(priority, leads)
  local suffix = priority ~= 0 and string.format('%d', priority) or ''
  return leads and {'any' .. suffix, 'leader' .. suffix} or {'any' .. suffix}
end

-- The first `limit` jobs of one priority up to `upto` whose target this replica knows, in the order of (look, id).
-- With `walk`, nothing if more than so many targets must be passed for that.
local function looks_of(p, replica, kinds, upto, limit, walk)
  local found = {}
  for _, kind in ipairs(kinds) do
    local top, from, chunk = p .. ':look:' .. kind, 0, math.min(200, limit)
    while true do
      local firsts = redis.call('ZRANGEBYSCORE', top, '-inf', upto, 'WITHSCORES', 'LIMIT', from, chunk)
      if not firsts[1] then break end
      local names, first = {}, {}
      for n = 1, #firsts, 2 do
        local id, only, target = string.match(firsts[n], '^(%S*)(%s)(.*)$')
        names[#names + 1] = target
        first[#first + 1] = {look = tonumber(firsts[n + 1]), id = id, kind = kind, target = target, only = only == '\t'}
      end
      local known = redis.call('SMISMEMBER', p .. ':knows:' .. replica, unpack(names))
      for n, job in ipairs(first) do
        if known[n] ~= 1 then
          -- Others know it.
        elseif job.only then
          found[#found + 1] = job
        else
          local group = kind .. ':' .. job.target
          local jobs = redis.call('ZRANGEBYSCORE', p .. ':look:' .. group, '-inf', upto, 'WITHSCORES', 'LIMIT', 0, limit)
          for m = 1, #jobs, 2 do
            found[#found + 1] = {look = tonumber(jobs[m + 1]), id = jobs[m], kind = kind, target = job.target}
          end
        end
      end
      if #names < chunk then break end
      -- Once there are enough, no target that follows has an earlier one.
      if #found >= limit then
        in_order(found)
        if not earlier(first[#first], found[limit]) then break end
      end
      -- A few more, then many: usually one crowd stands in front, of a pool without a replica, and it is one target.
      from, chunk = from + #names, math.min(200, 4 * chunk)
      if walk and from >= walk then return nil end
    end
  end
  in_order(found)
  for n = #found, limit + 1, -1 do found[n] = nil end
  return found
end

-- The same for all priorities, the highest first; `limit` of each.
local function looks(p, replica, leads, upto, limit)
  local found
  for _, priority in ipairs(priorities(p)) do
    local some = looks_of(p, replica, kinds_of(priority, leads), upto, limit)
    for _, job in ipairs(some) do job.priority = priority end
    if found then
      for _, job in ipairs(some) do found[#found + 1] = job end
    else
      found = some
    end
  end
  return found
end

local function leader_only(job) return string.sub(job.kind, 1, 6) == 'leader' and 1 or 0 end

-- What this replica looks at next, whatever the priority: the first `limit` of all, but for those set aside. Nothing, if
-- it knows few of many tasks.
local function looks_ahead(p, replica, leads, limit, aside, set_aside)
  local found = {}
  for _, priority in ipairs(priorities(p)) do
    local some = looks_of(p, replica, kinds_of(priority, leads), '+inf', limit + set_aside, 4 * limit + 20)
    if not some then return {} end
    for _, job in ipairs(some) do
      if not aside[job.id] then found[#found + 1] = job end
    end
  end
  in_order(found)
  local ahead = {}
  for n = 1, math.min(limit, #found) do
    ahead[2 * n - 1] = whole(found[n].look)
    ahead[2 * n] = leader_only(found[n])
  end
  return ahead
end

-- The earliest look for this replica.
local function soonest_for(p, replica, leads)
  local soonest
  for _, job in ipairs(looks(p, replica, leads, '+inf', 1)) do
    if not soonest or job.look < soonest then soonest = job.look end
  end
  return soonest
end

-- The earliest look of all.
local function soonest_of_all(p)
  local soonest
  for _, priority in ipairs(priorities(p)) do
    for _, kind in ipairs(kinds_of(priority, true)) do
      local first = redis.call('ZRANGE', p .. ':look:' .. kind, 0, 0, 'WITHSCORES')
      if first[1] and (not soonest or tonumber(first[2]) < soonest) then soonest = tonumber(first[2]) end
    end
  end
  return soonest
end
