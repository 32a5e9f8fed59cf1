-- What is asked for page by page, in the order of ids: the jobs that run, by name; those that neither wait nor run, by state; and those of a queue. What only waits
-- to be taken is in the last one alone.
CREATE INDEX swarmiji_job_runs ON swarmiji_job (name) WHERE state IN ('RUNNING', 'RUNQUEUED');
CREATE INDEX swarmiji_job_rest ON swarmiji_job (state) WHERE state NOT IN ('QUEUED', 'RUNNING', 'RUNQUEUED');
CREATE INDEX swarmiji_job_queue_id ON swarmiji_job (queue) WHERE queue IS NOT NULL;
