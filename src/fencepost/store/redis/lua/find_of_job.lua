-- ARGV: prefix, job id, lowest due, highest due, states, most
local found = {}
local cut = collect(ARGV[1], found, ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]))
return {found, cut}
