-- Fires of all jobs, minute by minute, newest first. Looks at some thousand jobs at the most, then says where to
-- go on: at which minute, and where in it.
-- ARGV: prefix, lowest due, below which, states, minute, cursor, most
local p, states, most = ARGV[1], ARGV[4], tonumber(ARGV[7])
local minute, cursor, looked, found = ARGV[5], ARGV[6], 0, {}
local lowest = ARGV[2] == '-inf' and -math.huge or tonumber(ARGV[2])
local below = ARGV[3] == '+inf' and math.huge or tonumber(ARGV[3])
while minute and looked < 2000 do
  local start = tonumber(minute) * 60000000
  local low, high = math.max(start, lowest), math.min(start + 60000000, below)
  local page = redis.call('SSCAN', p .. ':minute:' .. minute, cursor, 'COUNT', 1000)
  for _, id in ipairs(page[2]) do
    collect(p, found, id, whole(low), '(' .. whole(high), states, 100000)
    looked = looked + 1
  end
  cursor = page[1]
  if cursor == '0' then
    local least = lowest == -math.huge and '-inf' or math.floor(lowest / 60000000)
    minute = redis.call('ZREVRANGEBYSCORE', p .. ':minutes', '(' .. minute, least, 'LIMIT', 0, 1)[1]
    if #found >= most then break end
  end
end
return {found, minute or false, cursor}
