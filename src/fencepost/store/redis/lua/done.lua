-- Fires that are not among those already read: final ones, and those planned further ahead.
-- ARGV: prefix, then per fire: job id, member, due (empty: by hand)
local p = ARGV[1]
local found = {}
for n = 2, #ARGV, 3 do
  local id, member, due = ARGV[n], ARGV[n + 1], ARGV[n + 2]
  if due == '' then due = redis.call('HGET', p .. ':manual', id .. member) end
  if due then
    local done = redis.call('ZRANGEBYSCORE', p .. ':done:' .. id, due, due)
    local by_hand = string.sub(member, 1, 1) == '!' and redis.call('GET', p .. ':fire:' .. id .. ':' .. member)
    found[#found + 1] = {due, done, redis.call('ZSCORE', p .. ':live:' .. id, member), by_hand}
  else
    found[#found + 1] = {}
  end
end
return found
