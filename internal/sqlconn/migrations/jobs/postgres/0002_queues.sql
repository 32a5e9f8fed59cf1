-- Jobs of queues, and answers from outside. queue_due is the Due of a job with a queue, whose due is null: so it is in none of the indexes of what anybody
-- may take. Empty texts and times that are none are null.
ALTER TABLE swarmiji_job
	ADD COLUMN queue_due   bigint,
	ADD COLUMN weight      bigint NOT NULL DEFAULT 0,
	ADD COLUMN timeout     bigint NOT NULL DEFAULT 0,
	ADD COLUMN deadline    bigint,
	ADD COLUMN attempts    bigint NOT NULL DEFAULT 0,
	ADD COLUMN expires     bigint,
	ADD COLUMN respond     smallint NOT NULL DEFAULT 0,
	ADD COLUMN queue       text COLLATE "C",
	ADD COLUMN time_window text COLLATE "C",
	ADD COLUMN unique_key  text COLLATE "C",
	ADD COLUMN answer_key  text COLLATE "C",
	ADD COLUMN phase       text COLLATE "C",
	ADD COLUMN answer      text;

-- The indexes of queues have a condition each that is always so, and that only their own statements repeat: the server would take one for another, when it has seen
-- the table empty.
-- A queue's jobs, and those of its line by time.
CREATE INDEX swarmiji_job_queue ON swarmiji_job (queue, state, queue_due, priority, id, weight) WHERE queue IS NOT NULL AND mock > -1;
-- A queue's line by priority, and the lightest of it, which tells a full queue that there is nothing to be read.
CREATE INDEX swarmiji_job_line ON swarmiji_job (queue, priority, queue_due, id, weight) WHERE state = 'QUEUED' AND queue_due IS NOT NULL AND name > '';
CREATE INDEX swarmiji_job_light ON swarmiji_job (queue, weight) WHERE state = 'QUEUED' AND queue_due IS NOT NULL AND has_children > -1;
CREATE INDEX swarmiji_job_answer ON swarmiji_job (name, answer_key, id) WHERE answer_key IS NOT NULL;
CREATE INDEX swarmiji_job_unique ON swarmiji_job (name, unique_key, id) WHERE unique_key IS NOT NULL;
CREATE INDEX swarmiji_job_expires ON swarmiji_job (expires, id) WHERE expires IS NOT NULL;
