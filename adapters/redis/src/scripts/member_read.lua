-- Reads a member's record.
-- KEYS: records, listed; ARGV: identity
-- Returns {seconds, microseconds, record or nil, until when it is listed or nil}, or {'type', key}.
local time = redis.call('TIME')
local record, wrong = try('HGET', KEYS[1], ARGV[1])
if wrong then
  return wrong
end
local ends
ends, wrong = try('ZSCORE', KEYS[2], ARGV[1])
if wrong then
  return wrong
end
return {time[1], time[2], record, ends}
