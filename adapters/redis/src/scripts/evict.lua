-- Takes a lease away from whoever has it.
-- KEYS: lease, waiters
-- ARGV: 'delete', or the owner to put in place; channel
-- Returns {'none'}, or {'evicted', value, remaining ms (-1: no end)}, or why it can't be:
-- {'endless', value}, {'type', key}.
local value, wrong = read(KEYS[1])
if wrong then
  return wrong
end
if not value then
  return {'none'}
end
local remaining = redis.call('PTTL', KEYS[1])
if ARGV[1] == 'delete' then
  redis.call('DEL', KEYS[1])
  -- Nobody's handle: also those who wait where it is evicted are told.
  free(KEYS[2], '-', ARGV[2])
elseif remaining < 0 then
  return {'endless', shown(value)}
else
  local token = string.match(value, '^(%d+):')
  redis.call('SET', KEYS[1], (token and token .. ':' or '') .. ARGV[1], 'KEEPTTL')
end
return {'evicted', shown(value), remaining}
