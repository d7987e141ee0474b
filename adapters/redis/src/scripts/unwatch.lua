-- Forgets that a handle waits for a lease.
-- KEYS: waiters; ARGV: handle
redis.pcall('ZREM', KEYS[1], ARGV[1])
return 0
