-- Writes a run of a job if it is what it was, and removes the earliest of those that are too many.
-- KEYS: job
-- ARGV: owner, the run as it was (empty: none), its record, for how long to keep all of them in ms, how many are kept
-- Returns {'written'}, or {'changed'} if the run is not what it was, and then nothing was done; or {'type', key}.
local before, wrong = try('HGET', KEYS[1], ARGV[1])
if wrong then
  return wrong
end
if (before or '') ~= ARGV[2] then
  return {'changed'}
end
-- Where a run stands among the others; what can't be read comes first, and so is the first to go.
local function number_of(run)
  return tonumber(string.match(run, '^(%d+) ') or '') or 0
end
local number, runs
if before then
  number = number_of(before)
else
  local last = 0
  runs = redis.call('HGETALL', KEYS[1])
  for i = 2, #runs, 2 do
    last = math.max(last, number_of(runs[i]))
  end
  number = last + 1
end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', number) .. ' ' .. ARGV[3])
if not before then
  for i = 2, #runs, 2 do
    if number_of(runs[i]) <= number - ARGV[5] then
      redis.call('HDEL', KEYS[1], runs[i - 1])
    end
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {'written'}
