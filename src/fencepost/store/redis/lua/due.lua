-- Jobs to be looked at, for a replica; with no replica: the earliest look of all.
-- ARGV: prefix, replica, leads, up to, limit
local p, replica = ARGV[1], ARGV[2]
if replica == '' then
  local soonest = soonest_of_all(p)
  return {soonest and whole(soonest) or false}
end
local found = {}
for _, each in ipairs(looks(p, replica, ARGV[3] == '1', ARGV[4], tonumber(ARGV[5]))) do
  found[#found + 1] = each.id
  found[#found + 1] = whole(each.look)
  found[#found + 1] = each.priority
  found[#found + 1] = leader_only(each)
end
return found
