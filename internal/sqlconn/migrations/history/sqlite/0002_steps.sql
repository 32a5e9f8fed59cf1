-- Tasks of workflows, for the list of workflows.
CREATE INDEX swarmiji_history_step ON swarmiji_history (ns, changed) WHERE root <> '';
