-- Takes a lease if nobody has it, or confirms (and extends) it if this owner has.
-- KEYS: lease, high water, waiters
-- ARGV: owner, TTL in ms, floor, the rest of the JSON object that is kept for people, handle, channel,
--       for how long to wait beyond the TTL of whoever has it, in ms (empty: not at all)
-- Returns {'granted', token} or {'held', value, remaining ms}, or why it can't be told:
-- {'endless', value}, {'type', key}, {'high', value}.
local value, last = unpack(redis.call('MGET', KEYS[1], KEYS[2]))
if value then
  local token, owner = string.match(value, '^(%d+):([^\n]*)')
  if owner == ARGV[1] then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return {'granted', token}
  end
  local remaining = redis.call('PTTL', KEYS[1])
  if remaining < 0 then
    return {'endless', shown(value)}
  end
  if ARGV[7] ~= '' then
    register(KEYS[3], ARGV[5], remaining + ARGV[7])
  end
  return {'held', shown(value), remaining}
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- First the high water: if there is no memory for the lease, a number was left out, and nothing else.
local token, wrong = next_token(KEYS[2], last, ARGV[3], now)
if wrong then
  return wrong
end
local record = token .. ':' .. ARGV[1] .. '\n{"v":1,"since":' .. string.format('%.0f', now) .. ARGV[4]
-- What is no string was not seen.
if not redis.call('SET', KEYS[1], record, 'PX', ARGV[2], 'NX') then
  return {'type', KEYS[1]}
end
redis.pcall('ZREM', KEYS[3], ARGV[5])
tell(ARGV[6], 'held ' .. ARGV[5] .. ' ' .. token .. ' ' .. ARGV[2])
return {'granted', token}
