-- Tasks of workflows, for the list of workflows. Only a query with the same condition uses this index:
-- for the tasks of one workflow it would be the wrong one.
CREATE INDEX swarmiji_history_step ON swarmiji_history (ns, changed, seq) WHERE octet_length(root) > 0;

-- Counts of one queue, of which there may be thousands.
CREATE INDEX swarmiji_history_minute_queue ON swarmiji_history_minute (queue, minute);
