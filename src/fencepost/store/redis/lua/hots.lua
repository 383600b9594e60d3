-- What is hot of these jobs.
-- ARGV: prefix, ids
local found = {}
for n = 2, #ARGV do
  local hot = redis.call('HMGET', ARGV[1] .. ':hot:' .. ARGV[n], unpack(HOT))
  found[#found + 1] = hot[1] and hot
end
return found
