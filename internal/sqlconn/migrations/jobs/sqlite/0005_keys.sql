-- Jobs of a sequence, a parent or a key by state, so that what was kept costs nothing.
DROP INDEX swarmiji_job_sequence;
DROP INDEX swarmiji_job_parent;
DROP INDEX swarmiji_job_answer;
DROP INDEX swarmiji_job_unique;
CREATE INDEX swarmiji_job_sequence ON swarmiji_jobs (sequence_key, state) WHERE sequence_key IS NOT NULL;
CREATE INDEX swarmiji_job_parent ON swarmiji_jobs (parent, state) WHERE parent IS NOT NULL;
CREATE INDEX swarmiji_job_answer ON swarmiji_jobs (name, answer_key, state) WHERE answer_key IS NOT NULL;
CREATE INDEX swarmiji_job_unique ON swarmiji_jobs (name, unique_key, state) WHERE unique_key IS NOT NULL;
