-- Tells who is listed, or the records of some.
-- KEYS: records, listed; ARGV: identities, or nothing for who is listed
-- Returns {seconds, microseconds, {identity, ...}} or {seconds, microseconds, {record or nil, ...}}, or {'type', key}.
local time = redis.call('TIME')
local found, wrong
if ARGV[1] then
  found, wrong = try('HMGET', KEYS[1], unpack(ARGV))
else
  local now = string.format('%.0f', time[1] * 1000000 + time[2])
  found, wrong = try('ZRANGEBYSCORE', KEYS[2], '(' .. now, '+inf')
end
if wrong then
  return wrong
end
return {time[1], time[2], found}
