-- Each message leaves removed rows. With the default pauses autovacuum falls behind 10,000 messages
-- a second, and the table grows.
ALTER TABLE swarmiji_message SET (autovacuum_vacuum_cost_delay = 0);
