-- Jobs of queues, and answers from outside. queue_due is the Due of a job with a queue, whose due is null: so it is in none of the indexes of what anybody
-- may take. Empty texts and times that are none are null.
ALTER TABLE swarmiji_job ADD COLUMN queue_due integer;
ALTER TABLE swarmiji_job ADD COLUMN weight integer NOT NULL DEFAULT 0;
ALTER TABLE swarmiji_job ADD COLUMN timeout integer NOT NULL DEFAULT 0;
ALTER TABLE swarmiji_job ADD COLUMN deadline integer;
ALTER TABLE swarmiji_job ADD COLUMN attempts integer NOT NULL DEFAULT 0;
ALTER TABLE swarmiji_job ADD COLUMN expires integer;
ALTER TABLE swarmiji_job ADD COLUMN respond integer NOT NULL DEFAULT 0;
ALTER TABLE swarmiji_job ADD COLUMN queue text;
ALTER TABLE swarmiji_job ADD COLUMN time_window text;
ALTER TABLE swarmiji_job ADD COLUMN unique_key text;
ALTER TABLE swarmiji_job ADD COLUMN answer_key text;
ALTER TABLE swarmiji_job ADD COLUMN phase text;
ALTER TABLE swarmiji_job ADD COLUMN answer text;

-- A queue's jobs, and those of its line by time.
CREATE INDEX swarmiji_job_queue ON swarmiji_job (queue, state, queue_due, priority, id, weight) WHERE queue IS NOT NULL;
-- A queue's line by priority, and the lightest of it, which tells a full queue that there is nothing to be read.
CREATE INDEX swarmiji_job_line ON swarmiji_job (queue, priority, queue_due, id, weight) WHERE state = 'QUEUED' AND queue_due IS NOT NULL;
CREATE INDEX swarmiji_job_light ON swarmiji_job (queue, weight) WHERE state = 'QUEUED' AND queue_due IS NOT NULL;
CREATE INDEX swarmiji_job_answer ON swarmiji_job (name, answer_key) WHERE answer_key IS NOT NULL;
CREATE INDEX swarmiji_job_unique ON swarmiji_job (name, unique_key) WHERE unique_key IS NOT NULL;
CREATE INDEX swarmiji_job_expires ON swarmiji_job (expires) WHERE expires IS NOT NULL;
