-- What all scripts share. It stands in front of each of them.

-- What a command reads from a key; nothing, and an answer, if the key holds something of another type, or the command
-- is refused.
local function try(command, key, ...)
  local found = redis.pcall(command, key, ...)
  if type(found) ~= 'table' or not found.err then
    return found
  end
  if string.find(found.err, 'WRONGTYPE', 1, true) then
    return nil, {'type', key}
  end
  return nil, found
end

-- What a key holds: its value, or false if there is none; nothing, and an answer, if it can't be read.
local function read(key)
  return try('GET', key)
end

-- What another program keeps under the key may be long; ours is shorter than this.
local function shown(value)
  return string.sub(value, 1, 16384)
end

-- A user may lack the right to a channel; then only those who wait hear nothing.
local function tell(channel, message)
  redis.pcall('PUBLISH', channel, message)
end

-- Raises the high water from what MGET says of it, and returns what it is then: the next token, above this floor. Nothing,
-- and an answer, if there is none: what the key holds is none of ours. `now` is the time in microseconds.
local function next_token(key, last, floor, now)
  local number = tonumber(last or 0)
  -- Above 2^53 numbers are not exact any more.
  if last and not string.match(last, '^%d+$') or number >= 9007199254740991 then
    return nil, {'high', last}
  end
  local token = string.format('%.0f', math.max(number, tonumber(floor), now - 1) + 1)
  -- What is no string was not seen.
  if not redis.call('SET', key, token, last and 'XX' or 'NX') then
    return nil, {'type', key}
  end
  return token
end

