-- What the scripts about leases share. It stands in front of each of them.

-- What a key holds: its value, or false if there is none; nothing, and an answer, if it can't be read.
local function read(key)
  local value = redis.pcall('GET', key)
  if type(value) ~= 'table' or not value.err then
    return value
  end
  if string.find(value.err, 'WRONGTYPE', 1, true) then
    return nil, {'type', key}
  end
  return nil, value
end

-- What another program keeps under the key may be long; ours is shorter than this.
local function shown(value)
  return string.sub(value, 1, 16384)
end

local function milliseconds()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- A user may lack the right to a channel; then only those who wait hear nothing.
local function tell(channel, message)
  redis.pcall('PUBLISH', channel, message)
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
  redis.pcall('ZREM', waiters, handle)
  redis.pcall('HDEL', waiting, handle)
end

-- Tells all who listen that the lease is free, and names up to two of those that wait, those that have
-- waited longest, but not this handle. Whoever is named, or whose time is over, waits no more.
-- Returns how many were named.
local function free(waiters, waiting, handle, channel)
  local message, chosen, place = 'free ' .. handle, 0, 0
  local now = milliseconds()
  -- As many dead ones as anybody could want to clear away at once.
  for _ = 1, 100 do
    local page = redis.pcall('ZRANGE', waiters, place, place + 15)
    if chosen == 2 or page.err or #page == 0 then
      break
    end
    for _, waiter in ipairs(page) do
      local last = redis.pcall('HGET', waiting, waiter)
      if waiter == handle or chosen == 2 then
        place = place + 1
      else
        if type(last) == 'string' and (tonumber(last) or 0) >= now then
          chosen = chosen + 1
          message = message .. ' ' .. waiter
        end
        forget(waiters, waiting, waiter)
      end
    end
  end
  tell(channel, message)
  return chosen
end

