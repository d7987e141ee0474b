-- Forgets that a handle waits for a lease.
-- KEYS: waiters, waiting; ARGV: handle
forget(KEYS[1], KEYS[2], ARGV[1])
return 0
