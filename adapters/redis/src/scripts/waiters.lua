-- What the scripts that register handles as waiters share. It stands in front of each of them, behind what all scripts share.

-- Registers a handle as one that waits, for so many ms from now.
-- When memory is full it is left out, which costs it no more than its place.
local function register(waiters, handle, lasts)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  -- Another program's key may last for ages; whoever waits comes back within the longest TTL, which is a week.
  lasts = math.min(lasts, 608400000)
  -- Those that did not come back.
  redis.pcall('ZREMRANGEBYSCORE', waiters, '-inf', string.format('(%.0f', now))
  local added = redis.pcall('ZADD', waiters, string.format('%.0f', now + lasts), handle)
  if type(added) == 'number' and redis.call('PTTL', waiters) < lasts then
    redis.call('PEXPIRE', waiters, lasts)
  end
end

