-- Early answers, deferred tasks and the leases of queues have tables of their own. The table of jobs has a new name, so that a program which does not know that fails at its next statement.
ALTER TABLE swarmiji_job RENAME TO swarmiji_jobs;

-- Answers that came before their requests were stored. result is empty where the answer is a refusal.
CREATE TABLE swarmiji_early_answer (
	name    text NOT NULL,
	key     text NOT NULL,
	result  text NOT NULL,
	refusal text NOT NULL,
	expires integer NOT NULL,
	PRIMARY KEY (name, key)
) WITHOUT ROWID;

CREATE INDEX swarmiji_early_answer_expires ON swarmiji_early_answer (expires);

-- Tasks that wait for answers. Times are microseconds since 1970, in UTC; null: none.
CREATE TABLE swarmiji_deferral (
	task         text PRIMARY KEY NOT NULL,
	queue        text NOT NULL,
	name         text NOT NULL,
	generation   integer NOT NULL,
	at_most_once integer NOT NULL,
	key          text NOT NULL,
	phase        text NOT NULL,
	verdict      text NOT NULL,
	answer       text NOT NULL,
	refusal      text NOT NULL,
	claimed      integer NOT NULL,
	fence        integer NOT NULL,
	deadline     integer,
	due          integer,
	expires      integer,
	state        text NOT NULL
);

CREATE INDEX swarmiji_deferral_due ON swarmiji_deferral (queue, due, task) WHERE due IS NOT NULL;
CREATE INDEX swarmiji_deferral_key ON swarmiji_deferral (name, key, expires);
CREATE INDEX swarmiji_deferral_expires ON swarmiji_deferral (expires) WHERE expires IS NOT NULL;

INSERT OR REPLACE INTO swarmiji_early_answer (name, key, result, refusal, expires)
	SELECT name, answer_key, coalesce(answer, ''), coalesce(reason, ''), expires FROM swarmiji_jobs
	WHERE queue = 'swarmiji.early' AND answer_key IS NOT NULL AND expires IS NOT NULL ORDER BY id;

-- Of several of one task the one that is open counts, else that of the last attempt.
INSERT INTO swarmiji_deferral (task, queue, name, generation, at_most_once, key, phase, verdict, answer, refusal, claimed, fence, deadline, due, expires, state)
	SELECT substr(unique_key, 19), substr(queue, 19), name, run - 1, coalesce(json_extract(data, '$.atMostOnce'), 0), coalesce(answer_key, ''),
		CASE WHEN state <> 'RUNNING' THEN 'OVER' WHEN phase IS NULL THEN 'RESERVED' WHEN phase = 'AWAITING' THEN 'AWAITING' ELSE 'DECIDED' END,
		CASE
			WHEN state <> 'RUNNING' THEN CASE WHEN phase IS NULL THEN '' WHEN state = 'FINISHED' THEN 'ANSWER' ELSE 'REFUSAL' END
			WHEN phase = 'AWAITING' THEN ''
			WHEN phase = 'ANSWERED' AND respond = 0 THEN 'TIMEOUT'
			WHEN answer IS NOT NULL THEN 'ANSWER'
			WHEN reason IS NOT NULL THEN 'REFUSAL'
			ELSE '' END,
		coalesce(answer, ''), coalesce(reason, ''), scheduled IS NOT NULL, token, deadline, queue_due, expires, CASE WHEN data = '{}' THEN '' ELSE data END
	FROM (
		SELECT *, row_number() OVER (PARTITION BY unique_key ORDER BY state = 'RUNNING' DESC, run DESC, id DESC) AS place FROM swarmiji_jobs
		WHERE queue GLOB 'swarmiji.deferred/*' AND unique_key IS NOT NULL
	) WHERE place = 1;

-- The lease by which one runner leads a queue.
CREATE TABLE swarmiji_queue_lease (
	queue      text PRIMARY KEY NOT NULL,
	fence      integer NOT NULL,
	until      integer NOT NULL,
	admissions integer NOT NULL,
	status     text NOT NULL
);

INSERT OR REPLACE INTO swarmiji_queue_lease (queue, fence, until, admissions, status)
	SELECT name, token, queue_due, run, data FROM swarmiji_jobs WHERE queue = 'swarmiji.queues' AND queue_due IS NOT NULL ORDER BY id;

DELETE FROM swarmiji_jobs WHERE queue IN ('swarmiji.early', 'swarmiji.queues') OR queue GLOB 'swarmiji.deferred/*';

-- Every job counts its attempts, and one with a retry_after its hand-outs in a run. Neither is in
-- the data any more.
ALTER TABLE swarmiji_jobs ADD COLUMN handouts integer NOT NULL DEFAULT 0;

UPDATE swarmiji_jobs SET
	handouts = CASE WHEN retry_after IS NULL THEN 0 ELSE max(0, coalesce(CAST(json_extract(data, '$.retryAfterCount') AS integer), 0)) END,
	attempts = max(attempts, coalesce(CAST(json_extract(data, '$.runnerRetries') AS integer), 0) + CASE WHEN state = 'RUNNING' THEN 1 ELSE 0 END,
		CASE WHEN retry_after IS NULL THEN 0 ELSE coalesce(CAST(json_extract(data, '$.retryAfterCount') AS integer), 0) END),
	data = CASE WHEN retry_after IS NULL THEN json_remove(data, '$.runnerRetries') ELSE json_remove(data, '$.runnerRetries', '$.retryAfterCount', '$.originalNextRun') END
	WHERE queue IS NULL AND json_valid(data)
		AND (instr(data, '"runnerRetries":') > 0 OR retry_after IS NOT NULL AND state <> 'QUEUED' AND instr(data, '"retryAfterCount":') > 0);

UPDATE swarmiji_jobs SET attempts = 1 WHERE queue IS NULL AND attempts = 0 AND (state = 'RUNNING' OR state = 'RUNQUEUED' AND retry_after IS NOT NULL);

-- The messages of tasks with conditions, each of which is a job until it has ended.
CREATE TABLE swarmiji_job_message (
	job     integer PRIMARY KEY,
	message text NOT NULL
);

INSERT INTO swarmiji_job_message (job, message) SELECT id, data FROM swarmiji_jobs WHERE queue IS NOT NULL AND answer_key GLOB 'swarmiji.task/*';

UPDATE swarmiji_jobs SET data = '{}' WHERE queue IS NOT NULL AND answer_key GLOB 'swarmiji.task/*';
