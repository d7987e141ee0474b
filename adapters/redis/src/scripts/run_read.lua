-- Reads one run of a job, or all of them.
-- KEYS: job; ARGV: owner, or nothing for all
-- Returns {seconds, microseconds, run or nil} or {seconds, microseconds, {owner, run, owner, run, ...}}, or {'type', key}.
local time = redis.call('TIME')
local found, wrong
if ARGV[1] then
  found, wrong = try('HGET', KEYS[1], ARGV[1])
else
  found, wrong = try('HGETALL', KEYS[1])
end
if wrong then
  return wrong
end
return {time[1], time[2], found}
