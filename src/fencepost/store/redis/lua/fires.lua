-- Fires as they are kept. `kind` says how to read a row: planned, running, waiting, done.

local function state_of(kind, row)
  if kind == 'planned' then return 'pending' end
  if kind == 'running' then return 'running' end
  return string.match(row, '\n%[%d+,"(%a+)"') or string.match(row, '^%d+ {"st":"(%a+)"') or (kind ~= 'done' and 'pending')
end

local function finished_of(row)
  return tonumber(string.match(row, '\n%[(%d+)') or string.match(row, '^%d+ {"st":"%a+","f":(%d+)'))
end

-- Adds the fires of a job in a range of due times to `found`, if their state is wanted (empty: any). At most `most`
-- that live and `most` final ones, the newest: returns where they were cut off, if they were. There may be a million
-- that were asked for later.
local function collect(p, found, id, low, high, states, most)
  local function add(due, kind, row)
    local state = state_of(kind, row)
    -- One that cannot be read is told of whatever was asked for: somebody must say so.
    if states == '' or not state or string.find(states, ',' .. state .. ',', 1, true) then
      found[#found + 1] = {id, due, kind, row}
    end
  end
  local live = redis.call('ZREVRANGEBYSCORE', p .. ':live:' .. id, high, low, 'WITHSCORES', 'LIMIT', 0, most)
  local done = redis.call('ZREVRANGEBYSCORE', p .. ':done:' .. id, high, low, 'WITHSCORES', 'LIMIT', 0, most)
  local cut, after = false, -math.huge
  for _, rows in ipairs({live, done}) do
    if #rows == 2 * most and tonumber(rows[#rows]) > after then cut, after = rows[#rows], tonumber(rows[#rows]) end
  end
  local reach = live[1] and (tonumber(redis.call('HGET', p .. ':hot:' .. id, 'reach') or '') or math.huge)
  for n = 1, #live, 2 do
    if tonumber(live[n + 1]) < after then break end
    local place, row = id .. ':' .. live[n], false
    if tonumber(live[n + 1]) <= reach or string.sub(live[n], 1, 1) == '!' then
      row = redis.call('GET', p .. ':job:' .. place)
      if row then
        add(live[n + 1], 'running', row)
      else
        row = redis.call('GET', p .. ':fire:' .. place)
        if row then add(live[n + 1], 'waiting', row) end
      end
    end
    if not row then add(live[n + 1], 'planned', live[n]) end
  end
  for n = 1, #done, 2 do
    if tonumber(done[n + 1]) < after then break end
    add(done[n + 1], 'done', done[n])
  end
  return cut
end
