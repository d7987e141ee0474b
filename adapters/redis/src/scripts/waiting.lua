-- What the scripts about leases share. It stands in front of each of them, behind what all scripts share.

local function milliseconds()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function forget(waiters, waiting, handle)
  -- Whoever is not in the one is not in the other.
  if redis.pcall('ZREM', waiters, handle) ~= 0 then
    redis.pcall('HDEL', waiting, handle)
  end
end

-- Until when a handle is to be counted as waiting; 0 if it is not.
local function last(waiting, handle)
  local found = redis.pcall('HGET', waiting, handle)
  return type(found) == 'string' and tonumber(found) or 0
end

-- Registers a handle as one that waits, for so many ms. One that is registered keeps its place.
-- When memory is full it is left out, which costs it no more than its place.
local function register(waiters, waiting, handle, lasts)
  local now = milliseconds()
  -- Another program's key may last for ages; whoever waits comes back within the longest TTL, which is a week.
  lasts = math.min(lasts, 608400000)
  local added = redis.pcall('ZADD', waiters, 'NX', now, handle)
  if type(added) == 'table' then
    return
  end
  redis.pcall('HSET', waiting, handle, string.format('%.0f', now + lasts))
  if added == 1 then
    -- Those that died do not pile up under a lease that is never released.
    for _, waiter in ipairs(redis.pcall('ZRANGE', waiters, 0, 15)) do
      if last(waiting, waiter) < now then
        forget(waiters, waiting, waiter)
      end
    end
  end
  for _, key in ipairs({waiters, waiting}) do
    if redis.call('PTTL', key) < lasts then
      redis.call('PEXPIRE', key, lasts)
    end
  end
end

-- Tells all who listen that the lease is free, and names up to two of those that wait, those that have
-- waited longest, but not this handle. Whoever is named, or whose time is over, waits no more. If two were named
-- it also tells how many wait beside them, so that these leave them a start.
-- Returns how many were named. `now` is the time in ms, to be read before anything is written: it may be refused.
local function free(waiters, waiting, handle, channel, now)
  local message, chosen, place = 'free ' .. handle, 0, 0
  -- As many dead ones as anybody could want to clear away at once.
  for _ = 1, 100 do
    local page = redis.pcall('ZRANGE', waiters, place, place + 15)
    if page.err or #page == 0 then
      break
    end
    for _, waiter in ipairs(page) do
      if waiter == handle then
        place = place + 1
      elseif chosen < 2 then
        if last(waiting, waiter) >= now then
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

