-- ARGV: prefix, up to, ids
return with_live(ARGV[1], tonumber(ARGV[2]), 3)
