-- Writes a member's record if it is what it was, and tells the view to whoever does not know it.
-- ARGV: channel, who publishes, identity, the record as it was (empty: none), until when it was listed (empty: it was not),
--       the record as it will be (empty: as it was), until when it is listed (empty: it is not), until when it is
--       remembered, '1' if others see a difference, the version that the asker knows ('any': it wants to know of none)
-- Returns {'written', seconds, microseconds, version, when the first of the others will be listed no longer or nil} and,
-- if the asker does not know it, the view as {identity, record or nil, ...}; or {'changed'} if the record is not what it
-- was, or its time is over meanwhile, and then nothing was done; or {'type', key}.
local wrong = begin()
if wrong then
  return wrong
end
local record
record, wrong = try('HGET', KEYS[1], ARGV[3])
if wrong then
  return wrong
end
local ends = redis.call('ZSCORE', KEYS[2], ARGV[3])
if (record or '') ~= ARGV[4] or (ends or '') ~= ARGV[5] then
  return finish({'changed'})
end
if ARGV[6] ~= '' then
  local listed = ARGV[7] ~= ''
  if ARGV[9] == '1' or listed ~= (ends ~= false) then
    raise()
  end
  redis.call('HSET', KEYS[1], ARGV[3], ARGV[6])
  redis.call('ZADD', KEYS[3], ARGV[8], ARGV[3])
  if listed then
    redis.call('ZADD', KEYS[2], ARGV[7], ARGV[3])
  elseif ends then
    redis.call('ZREM', KEYS[2], ARGV[3])
  end
end
local next_end = false
local first = redis.call('ZRANGE', KEYS[2], 0, 1, 'WITHSCORES')
for i = 1, #first, 2 do
  if first[i] ~= ARGV[3] and not next_end then
    next_end = whole(tonumber(first[i + 1]))
  end
end
local answer = {'written', time[1], time[2], whole(version), next_end}
if ARGV[10] ~= 'any' and ARGV[10] ~= whole(version) then
  local view, identities = {}, redis.call('ZRANGE', KEYS[2], 0, -1)
  for from = 1, #identities, 1000 do
    local to = math.min(from + 999, #identities)
    local records = redis.call('HMGET', KEYS[1], unpack(identities, from, to))
    for i = from, to do
      view[2 * i - 1] = identities[i]
      view[2 * i] = records[i - from + 1]
    end
  end
  answer[6] = view
end
return finish(answer)
