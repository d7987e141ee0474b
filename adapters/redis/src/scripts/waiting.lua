-- What the scripts about leases share. It stands in front of each of them, behind what all scripts share.

local function milliseconds()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Registers a handle as one that waits, for so many ms. One that is registered keeps its place.
-- When memory is full it is left out, which costs it no more than its place.
local function register(waiters, waiting, handle, lasts)
  local now = milliseconds()
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
end

local function forget(waiters, waiting, handle)
  -- Whoever is not in the one is not in the other.
  if redis.pcall('ZREM', waiters, handle) ~= 0 then
    redis.pcall('HDEL', waiting, handle)
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
    now = now or milliseconds()
    for _, waiter in ipairs(page) do
      if waiter == handle then
        place = place + 1
      elseif chosen < 2 then
        local last = redis.pcall('HGET', waiting, waiter)
        if type(last) == 'string' and (tonumber(last) or 0) >= now then
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

