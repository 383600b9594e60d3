-- The running fires of a replica, each with its job's edition.
-- ARGV: prefix, replica
local p = ARGV[1]
local found = {}
for _, place in ipairs(redis.call('SMEMBERS', p .. ':held:' .. ARGV[2])) do
  local id = string.match(place, '^(.*):!') or string.sub(place, 1, -29)
  local member = string.sub(place, #id + 2)
  found[#found + 1] = {
    place, redis.call('GET', p .. ':job:' .. place), redis.call('ZSCORE', p .. ':live:' .. id, member),
    redis.call('HGET', p .. ':hot:' .. id, 'edition'),
  }
end
return found
