-- All fires that have a row: running ones, and those that wait.
-- ARGV: prefix
local p, found = ARGV[1], {}
local function add(place, kind)
  local row = redis.call('GET', p .. ':' .. kind .. ':' .. place)
  local id = string.match(place, '^(.*):!') or string.sub(place, 1, -29)
  local due = redis.call('ZSCORE', p .. ':live:' .. id, string.sub(place, #id + 2))
  if row and due then found[#found + 1] = {id, due, kind == 'job' and 'running' or 'waiting', row} end
end
for _, owners in ipairs({':replicas', ':engines'}) do
  for _, owner in ipairs(redis.call('SMEMBERS', p .. owners)) do
    for _, place in ipairs(redis.call('SMEMBERS', p .. ':held:' .. owner)) do add(place, 'job') end
  end
end
for _, place in ipairs(redis.call('SMEMBERS', p .. ':others')) do add(place, 'fire') end
return found
