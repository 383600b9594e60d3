-- Renames all keys of a namespace in one step. A replica's write under the old names comes before it and moves along, or
-- comes after it and finds nothing to change. The old names of lease and format stay taken: by another history, and by a
-- format that every version refuses as newer than its own.
-- ARGV: prefix, new prefix, that format, kinds of keys. Gives 0 if this was done before, else how many were renamed; or,
-- with nothing changed, the prefix of another namespace whose keys cannot be told from this one's.
local p, new, moved, kinds = ARGV[1], ARGV[2], ARGV[3], {}
for n = 4, #ARGV do kinds[ARGV[n]] = true end
if redis.call('HGET', p .. ':meta', 'schema') == moved then return 0 end

local function is_namespace(q)
  -- A job may be called `meta`: only the hash of a namespace has this field.
  return redis.call('TYPE', q .. ':meta').ok == 'hash' and redis.call('HEXISTS', q .. ':meta', 'schema') == 1
end

-- Beside a namespace `shop` one called `shop:live` has keys that might as well be those of a job in `shop`.
for at, kind in string.gmatch(p, '():([^:]*)') do
  local outer = string.sub(p, 1, at - 1)
  if kinds[kind] and is_namespace(outer) then return outer end
end
local found = {}
local pattern = string.gsub(p, '[%[%]%*%?%^\\]', '\\%0') .. ':*'
for _, key in ipairs(redis.call('KEYS', pattern)) do
  if kinds[string.match(key, '^[^:]*', #p + 2)] then
    local inner = string.match(key, '^(.*):meta$')
    if inner and inner ~= p and is_namespace(inner) then return inner end
    found[#found + 1] = key
  end
end

for _, key in ipairs(found) do redis.call('RENAME', key, new .. string.sub(key, #p + 1)) end
redis.call('HSET', p .. ':leader', 'history', 'moved', 'edition', 1, 'holder', '', 'term', 0, 'renewals', 0, 'ttl', 0,
  'heartbeat', 0, 'expires', 0, 'incarnation', 0, 'standing', 'restarted', 'lost_through', '', 'server', '')
redis.call('HSET', p .. ':meta', 'schema', moved, 'run', '')
return #found
