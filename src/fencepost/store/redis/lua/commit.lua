-- How a careful step ends: nothing that it read has changed, or nothing is written. Gives 1; the key of what has changed,
-- if something has; -1 if the step took too long.
-- ARGV: prefix, the moment it was decided for, number of checks, checks (key, field, value), commands (length, words)
local p = ARGV[1]

-- A step that took long was decided for another time. (Empty: a test owns the time.)
if ARGV[2] ~= '' then
  local late = moment('', '') - tonumber(ARGV[2])
  if late < 0 or late > 1000000 then return -1 end
end

local at = 4
for _ = 1, tonumber(ARGV[3]) do
  if (redis.call('HGET', ARGV[at], ARGV[at + 1]) or '') ~= ARGV[at + 2] then return 0 end
  at = at + 3
end

local ours = {}

-- A job refers to this target. It is unknown until a replica says otherwise.
function ours.TARGET(name, text)
  if redis.call('HSETNX', p .. ':targets', name, text) == 1 and redis.call('HEXISTS', p .. ':knowers', name) == 0 then
    redis.call('ZADD', p .. ':unknown', 0, name)
  end
end

function ours.KNOW(replica, ...)
  for _, name in ipairs({...}) do
    if redis.call('SADD', p .. ':knows:' .. replica, name) == 1 and redis.call('HINCRBY', p .. ':knowers', name, 1) == 1 then
      redis.call('ZREM', p .. ':unknown', name)
    end
  end
end

function ours.FORGET(replica, ...)
  for _, name in ipairs({...}) do
    if redis.call('SREM', p .. ':knows:' .. replica, name) == 1 and redis.call('HINCRBY', p .. ':knowers', name, -1) == 0 then
      redis.call('HDEL', p .. ':knowers', name)
      if redis.call('HEXISTS', p .. ':targets', name) == 1 then redis.call('ZADD', p .. ':unknown', 0, name) end
    end
  end
end

function ours.NOTE(id, event)
  if redis.call('RPUSH', p .. ':events:' .. id, event) > 1 then redis.call('SADD', p .. ':retold', id) end
end

function ours.LOOK(...) refresh(p, {...}) end

while at <= #ARGV do
  local words = tonumber(ARGV[at])
  local command = ours[ARGV[at + 1]]
  if command then
    command(unpack(ARGV, at + 2, at + words))
  else
    redis.call(unpack(ARGV, at + 1, at + words))
  end
  at = at + 1 + words
end
return 1
