-- Writes records of members if all of them are what they were.
-- ARGV: channel, who publishes, '1' if others see a difference, and for each identity, the record as it was, as it will be
-- Returns {'written'}, or {'changed'} if one of them is not what it was, and then nothing was done; or {'type', key}.
local wrong = begin()
if wrong then
  return wrong
end
for i = 4, #ARGV, 3 do
  local record
  record, wrong = try('HGET', KEYS[1], ARGV[i])
  if wrong then
    return wrong
  end
  if (record or '') ~= ARGV[i + 1] then
    return finish({'changed'})
  end
end
if ARGV[3] == '1' then
  raise()
end
for i = 4, #ARGV, 3 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2])
end
return finish({'written'})
