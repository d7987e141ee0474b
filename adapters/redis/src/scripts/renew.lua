-- Extends leases that are their owners', with their tokens.
-- KEYS: the leases; ARGV: for each the TTL in ms and 'token:owner\n', which is how its value begins
-- Returns the indexes, from 1, of those that are not. What is of another type is nobody's.
local call, pcall, find, type, lost = redis.call, redis.pcall, string.find, type, {}
for i = 1, #KEYS do
  local value, mine = pcall('GET', KEYS[i]), ARGV[2 * i]
  if type(value) == 'string' and (find(value, mine, 1, true) == 1 or value .. '\n' == mine) then
    call('PEXPIRE', KEYS[i], ARGV[2 * i - 1])
  elseif type(value) == 'table' and value.err and not find(value.err, 'WRONGTYPE', 1, true) then
    return value
  else
    lost[#lost + 1] = i
  end
end
return lost
