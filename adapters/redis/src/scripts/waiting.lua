-- What the scripts about leases share. It stands in front of each of them, behind what all scripts share.

local function milliseconds(time)
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function forget(waiters, waiting, handle)
  -- Whoever is not in the one is not in the other.
  if redis.pcall('ZREM', waiters, handle) ~= 0 then
    redis.pcall('HDEL', waiting, handle)
  end
end

-- Whether a handle is to be counted as waiting.
local function waits(waiting, handle, now)
  local last = redis.pcall('HGET', waiting, handle)
  return type(last) == 'string' and (tonumber(last) or 0) >= now
end

-- Those that died do not pile up under a lease that is never released: looks at some, others each time.
local function bury(waiters, waiting, now)
  local count = redis.pcall('ZCARD', waiters)
  local place = type(count) == 'number' and count > 16 and now % (count - 15) or 0
  for _, waiter in ipairs(redis.pcall('ZRANGE', waiters, place, place + 15)) do
    if not waits(waiting, waiter, now) then
      forget(waiters, waiting, waiter)
    end
  end
end

-- Registers a handle as one that waits, for so many ms. One that is registered keeps its place.
-- When memory is full it is left out, which costs it no more than its place.
local function register(waiters, waiting, handle, lasts)
  local now = milliseconds(redis.call('TIME'))
  -- Another program's key may last for ages; whoever waits comes back within the longest TTL, which is a week.
  lasts = math.min(lasts, 608400000)
  local added = redis.pcall('ZADD', waiters, 'NX', now, handle)
  if type(added) == 'table' then
    return
  end
  redis.pcall('HSET', waiting, handle, string.format('%.0f', now + lasts))
  for _, key in ipairs({waiters, waiting}) do
    if redis.call('PTTL', key) < lasts then
      redis.call('PEXPIRE', key, lasts)
    end
  end
  if added == 1 then
    bury(waiters, waiting, now)
  end
end

-- Tells all who listen that the lease is free, and names up to two of those that wait, those that have
-- waited longest, but not this handle. Whoever is named, or whose time is over, waits no more. If two were named
-- it also tells how many wait beside them, so that these leave them a start.
-- Returns how many were named.
local function free(waiters, waiting, handle, channel)
  local message, chosen, place = 'free ' .. handle, 0, 0
  local now
  -- As many dead ones as anybody could want to clear away at once.
  for _ = 1, 100 do
    local page = redis.pcall('ZRANGE', waiters, place, place + 15)
    if page.err or #page == 0 then
      break
    end
    if not now then
      -- Something was done already, so this must not fail. Where the time can't be had all who wait count.
      local time = redis.pcall('TIME')
      now = time.err and 0 or milliseconds(time)
    end
    for _, waiter in ipairs(page) do
      if waiter == handle then
        place = place + 1
      elseif chosen < 2 then
        if waits(waiting, waiter, now) then
          chosen = chosen + 1
          message = message .. ' ' .. waiter
        end
        forget(waiters, waiting, waiter)
      end
    end
    if chosen == 2 or #page < 16 then
      break
    end
  end
  local others = chosen == 2 and redis.pcall('ZCARD', waiters)
  if type(others) == 'number' and others > 0 then
    message = message .. ' +' .. others
  end
  tell(channel, message)
  return chosen
end

