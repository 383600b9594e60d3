-- Tokens are compared and counted as texts: those of a late incarnation are beyond what Lua's numbers hold exactly.
local function next_token(token, first)
  if #first > #token or (#first == #token and first > token) then token = first end
  local low = tonumber(string.sub(token, -9)) + 1
  if low >= 1000000000 then return nil end -- once in a billion: the careful path counts on
  if #token <= 9 then return whole(low) end
  return string.sub(token, 1, -10) .. string.format('%09d', low)
end
