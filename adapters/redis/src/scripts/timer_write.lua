-- Writes a timer's record if it is what it was.
-- KEYS: timer, high water
-- ARGV: the record as it was (empty: none), for how long to keep it in ms, the record as it will be;
--       if that has a new token: what follows after it, and the floor that it must be above
-- Returns {'written', token or nil}, or {'changed'} if the record is not what it was, and then nothing was done; or why
-- it can't be: {'type', key}, {'high', value}.
local value, wrong = read(KEYS[1])
if wrong then
  return wrong
end
if (value or '') ~= ARGV[1] then
  return {'changed'}
end
local record, token = ARGV[3], false
if ARGV[4] then
  local time = redis.call('TIME')
  token, wrong = next_token(KEYS[2], redis.call('MGET', KEYS[2])[1], ARGV[5], time[1] * 1000000 + time[2])
  if wrong then
    return wrong
  end
  record = record .. token .. ARGV[4]
end
redis.call('SET', KEYS[1], record, 'PX', ARGV[2])
return {'written', token}
