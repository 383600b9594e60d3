-- Writes a piece of a namespace that is copied here, if the caller's move is the one that may.
-- ARGV: prefix, name of the move, command
if redis.call('HGET', ARGV[1] .. ':meta', 'move') ~= ARGV[2] then return 0 end
redis.call(unpack(ARGV, 3))
return 1
