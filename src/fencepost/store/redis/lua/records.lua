-- Jobs as they are stored, each with what is known of its task.
-- ARGV: prefix, ids
local p, found = ARGV[1], {}
for n = 2, #ARGV do
  local id = ARGV[n]
  local hot = redis.call('HMGET', p .. ':hot:' .. id, unpack(HOT))
  local cold = redis.call('HGET', p .. ':jobs', id)
  if hot[1] and cold then
    local group
    for m, name in ipairs(HOT) do if name == 'group' then group = hot[m] end end
    local target = string.match(group or '', '^[^:]+:(.*)$') or ''
    found[#found + 1] = {id, cold, hot, redis.call('HGET', p .. ':targets', target)}
  end
end
return found
