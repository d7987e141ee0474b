-- Extends leases that are their owners', with their tokens.
-- KEYS: the leases; ARGV: for each 'token:owner' and the TTL in ms
-- Returns the indexes, from 1, of those that are not.
local lost = {}
for i = 1, #KEYS do
  local value = redis.call('GET', KEYS[i])
  local mine = ARGV[2 * i - 1]
  if value and (value == mine or string.sub(value, 1, #mine + 1) == mine .. '\n') then
    redis.call('PEXPIRE', KEYS[i], ARGV[2 * i])
  else
    lost[#lost + 1] = i
  end
end
return lost
