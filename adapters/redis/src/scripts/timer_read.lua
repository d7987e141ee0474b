-- Reads a timer, and keeps its record from running out.
-- KEYS: timer; ARGV: how long it is kept, and the remaining TTL below which that is begun anew, in ms
-- Returns {seconds, microseconds, record or nil}, with 'type' behind if it is none of ours.
local time = redis.call('TIME')
local value, wrong = read(KEYS[1])
if wrong and wrong.err then
  return wrong
elseif wrong then
  return {time[1], time[2], false, 'type'}
end
-- What is no JSON object is that of another program, and not to be given an end.
if value and string.sub(value, 1, 1) == '{' and redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return {time[1], time[2], value}
