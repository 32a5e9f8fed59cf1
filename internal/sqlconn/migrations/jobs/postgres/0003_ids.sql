-- What is asked for page by page, in the order of ids: the jobs that run, by name; those that neither wait nor run, by state; and those of a queue. What only waits
-- to be taken is in the last one alone. Each repeats a condition that is always so, and ids are "id + 0", as only their own statements write: see 0002.
CREATE INDEX swarmiji_job_runs ON swarmiji_job (name, (id + 0)) WHERE state IN ('RUNNING', 'RUNQUEUED') AND token > -1;
CREATE INDEX swarmiji_job_rest ON swarmiji_job (state, (id + 0)) WHERE state NOT IN ('QUEUED', 'RUNNING', 'RUNQUEUED') AND token > -1;
CREATE INDEX swarmiji_job_queue_id ON swarmiji_job (queue, (id + 0)) WHERE queue IS NOT NULL AND attempts > -1;
