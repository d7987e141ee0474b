-- What the scripts that end a lease share. It stands in front of each of them, behind what all scripts share.

-- Tells all who listen that the lease is free, and names up to two of those that wait, but not this handle: those that would
-- come back first, which are mostly those that have not asked for longest. Whoever is named waits no more. If two were named
-- it also tells how many wait beside them, so that these leave them a start.
-- Returns how many were named.
local function free(waiters, handle, channel)
  -- Something was done already, so nothing here must fail.
  local message, chosen = 'free ' .. handle, {}
  for _, waiter in ipairs(redis.pcall('ZRANGE', waiters, 0, 2)) do
    if waiter ~= handle and #chosen < 2 then
      chosen[#chosen + 1] = waiter
      message = message .. ' ' .. waiter
    end
  end
  if #chosen > 0 then
    redis.pcall('ZREM', waiters, unpack(chosen))
  end
  local others = #chosen == 2 and redis.pcall('ZCARD', waiters)
  if type(others) == 'number' and others > 0 then
    message = message .. ' +' .. others
  end
  tell(channel, message)
  return #chosen
end

