-- Tells the records of the processes of one instance that are remembered.
-- KEYS: records, remembered; ARGV: what their identities begin with
-- Returns {seconds, microseconds, {identity, record or nil, ...}}, or {'type', key}.
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
local remembered, wrong = try('ZRANGEBYSCORE', KEYS[2], '(' .. now, '+inf')
if wrong then
  return wrong
end
local found = {}
for _, identity in ipairs(remembered) do
  if string.sub(identity, 1, #ARGV[1]) == ARGV[1] then
    local record
    record, wrong = try('HGET', KEYS[1], identity)
    if wrong then
      return wrong
    end
    found[#found + 1] = identity
    found[#found + 1] = record
  end
end
return {time[1], time[2], found}
