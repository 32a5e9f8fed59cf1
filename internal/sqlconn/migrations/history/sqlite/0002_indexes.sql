-- Tasks of workflows, for the list of workflows.
CREATE INDEX swarmiji_history_step ON swarmiji_history (ns, changed) WHERE root <> '';

-- Counts of one queue, of which there may be thousands.
CREATE INDEX swarmiji_history_minute_queue ON swarmiji_history_minute (queue, minute);
