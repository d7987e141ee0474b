-- Registers a handle as one that waits for a lease, also if nobody has it.
-- KEYS: lease, waiters; ARGV: handle, for how long beyond the TTL of whoever has it, in ms
local remaining = redis.call('PTTL', KEYS[1])
register(KEYS[2], ARGV[1], math.max(remaining, 0) + ARGV[2])
return 0
