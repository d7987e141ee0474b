-- What the scripts that change members share.
-- KEYS: records, a hash by identity; listed, until when each is, a sorted set in microseconds; remembered, likewise;
-- the version of the view. ARGV[1]: channel; ARGV[2]: who publishes there
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function whole(number)
  return string.format('%.0f', number)
end

local version, raised

-- What others see is another thing than before: the next version, once. It comes before what it stands for, so that
-- nothing is changed if there is no memory.
local function raise()
  if not raised then
    raised = true
    version = math.max(version + 1, now)
    redis.call('SET', KEYS[4], whole(version), 'PX', 60000)
    tell(ARGV[1], whole(version) .. ' ' .. ARGV[2])
  end
end

-- Reads the version, lists those no longer whose time is over, and forgets whom nobody need remember. Returns an answer
-- if a key is none of ours.
local function begin()
  local found, wrong = read(KEYS[4])
  if wrong then
    return wrong
  end
  -- One that was lost, or can't be, is taken for none: the next is above the clock.
  version = tonumber(found or '') or 0
  if not (version >= 0 and version < 9007199254740992) then
    version = 0
  end
  local ended, forgotten
  ended, wrong = try('ZCOUNT', KEYS[2], '-inf', whole(now))
  if wrong then
    return wrong
  end
  if ended > 0 or (version == 0 and redis.call('ZCARD', KEYS[2]) > 0) then
    raise()
    redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', whole(now))
  end
  forgotten, wrong = try('ZRANGEBYSCORE', KEYS[3], '-inf', whole(now), 'LIMIT', 0, 1000)
  if wrong then
    return wrong
  end
  if #forgotten > 0 then
    redis.call('HDEL', KEYS[1], unpack(forgotten))
    redis.call('ZREM', KEYS[3], unpack(forgotten))
  end
end

-- The keys are kept as long as anybody is remembered, and a minute at least. Returns the answer.
local function finish(answer)
  local last = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2]
  local keep = math.ceil(((tonumber(last or '') or 0) - now) / 1000)
  keep = whole(math.min(math.max(keep, 60000), 2592000000))
  for _, key in ipairs(KEYS) do
    redis.call('PEXPIRE', key, keep)
  end
  return answer
end

