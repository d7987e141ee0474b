-- Removes a key of ours.
-- KEYS: the key; ARGV: the command that reads it if it is of our type
-- Returns {'removed'}, {'none'}, or {'type', key}.
local found, wrong = try(ARGV[1], KEYS[1])
if wrong then
  return wrong
end
return {redis.call('DEL', KEYS[1]) > 0 and 'removed' or 'none'}
