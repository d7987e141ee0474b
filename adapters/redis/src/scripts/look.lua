-- Who has leases.
-- KEYS: the leases
-- Returns for each {value, remaining ms (-1: no end)}, {} if nobody has it, {remaining ms} for what is no string.
local found = {}
for i = 1, #KEYS do
  local value, wrong = read(KEYS[i])
  if wrong and wrong.err then
    return wrong
  elseif wrong then
    found[i] = {redis.call('PTTL', KEYS[i])}
  elseif value then
    found[i] = {shown(value), redis.call('PTTL', KEYS[i])}
  else
    found[i] = {}
  end
end
return found
