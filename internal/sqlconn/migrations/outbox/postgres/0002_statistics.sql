-- Whatever the last ANALYZE has found, the planner expects messages in all 64 buckets. After one of a
-- table with one bucket, it would read that whole table for each bucket.
ALTER TABLE swarmiji_outbox ALTER COLUMN bucket SET (n_distinct = 64);
ANALYZE swarmiji_outbox;
