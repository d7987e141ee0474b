-- Takes a lease if nobody has it, or confirms (and extends) it if this owner has.
-- KEYS: lease, high water, waiters, waiting
-- ARGV: owner, TTL in ms, floor, metadata (JSON, may be empty), handle, '1' to wait, channel
-- Returns {'granted', token} or {'held', value, remaining ms (-1: no end)}.
local value = redis.call('GET', KEYS[1])
if value then
  local token, owner = string.match(value, '^(%d+):([^\n]*)')
  if owner == ARGV[1] then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return {'granted', token}
  end
  return {'held', value, redis.call('PTTL', KEYS[1])}
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
local token = string.format('%.0f', math.max(last, tonumber(ARGV[3]), now - 1) + 1)
redis.call('SET', KEYS[2], token)
local record = token .. ':' .. ARGV[1]
if ARGV[4] ~= '' then
  record = record .. '\n' .. ARGV[4]
end
redis.call('SET', KEYS[1], record, 'PX', ARGV[2])
return {'granted', token}
