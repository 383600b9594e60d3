-- The moment of this step: the server's own, unless a test owns the time.
-- Wall time in microseconds since 1970 fits exactly into Lua's numbers; `steady` is in seconds.
local function moment(now, steady)
  if now ~= '' then return tonumber(now), tonumber(steady) end
  local clock = redis.call('TIME')
  local micros = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
  return micros, micros / 1000000
end

-- Lua would write large numbers as 1.7e+15.
local function whole(number) return string.format('%.0f', number) end
local function seconds(number) return string.format('%.6f', number) end
