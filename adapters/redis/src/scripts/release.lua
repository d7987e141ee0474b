-- Ends a lease that is this owner's, with this token if one is given, and tells those who wait.
-- KEYS: lease, waiters
-- ARGV: owner, token (may be empty), handle, channel
-- Returns -1 if it is not this owner's, else how many of those who wait were chosen.
local value, wrong = read(KEYS[1])
if wrong and wrong.err then
  return wrong
end
if not value then
  return -1
end
local token, owner = string.match(value, '^(%d+):([^\n]*)')
if owner ~= ARGV[1] or (ARGV[2] ~= '' and ARGV[2] ~= token) then
  return -1
end
redis.call('DEL', KEYS[1])
return free(KEYS[2], ARGV[3], ARGV[4])
