-- Early answers, deferred tasks and the leases of queues have tables of their own. The table of jobs has a new name, so that a program which does not know that fails at its next statement.
ALTER TABLE swarmiji_job RENAME TO swarmiji_jobs;

-- Answers that came before their requests were stored. result is empty where the answer is a refusal.
CREATE TABLE swarmiji_early_answer (
	expires bigint NOT NULL,
	name    text COLLATE "C" NOT NULL,
	key     text COLLATE "C" NOT NULL,
	result  text NOT NULL,
	refusal text NOT NULL,
	PRIMARY KEY (name, key)
);

CREATE INDEX swarmiji_early_answer_expires ON swarmiji_early_answer (expires);

-- Tasks that wait for answers. Times are microseconds since 1970, in UTC; null: none.
CREATE TABLE swarmiji_deferral (
	generation   bigint NOT NULL,
	fence        bigint NOT NULL,
	deadline     bigint,
	due          bigint,
	expires      bigint,
	at_most_once smallint NOT NULL,
	claimed      smallint NOT NULL,
	task         text COLLATE "C" PRIMARY KEY,
	queue        text COLLATE "C" NOT NULL,
	name         text COLLATE "C" NOT NULL,
	key          text COLLATE "C" NOT NULL,
	phase        text COLLATE "C" NOT NULL,
	verdict      text COLLATE "C" NOT NULL,
	answer       text NOT NULL,
	refusal      text NOT NULL,
	state        text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX swarmiji_deferral_due ON swarmiji_deferral (queue, due, task) WHERE due IS NOT NULL;
CREATE INDEX swarmiji_deferral_key ON swarmiji_deferral (name, key, expires);
CREATE INDEX swarmiji_deferral_expires ON swarmiji_deferral (expires) WHERE expires IS NOT NULL;

INSERT INTO swarmiji_early_answer (name, key, result, refusal, expires)
	SELECT DISTINCT ON (name, answer_key) name, answer_key, coalesce(answer, ''), coalesce(reason, ''), expires FROM swarmiji_jobs
	WHERE queue = 'swarmiji.early' AND answer_key IS NOT NULL AND expires IS NOT NULL ORDER BY name, answer_key, id DESC;

-- Of several of one task the one that is open counts, else that of the last attempt. data is searched as text: PostgreSQL reads no JSON that has a NUL somewhere.
INSERT INTO swarmiji_deferral (task, queue, name, generation, at_most_once, key, phase, verdict, answer, refusal, claimed, fence, deadline, due, expires, state)
	SELECT DISTINCT ON (unique_key) substr(unique_key, 19), substr(queue, 19), name, run - 1,
		CASE WHEN strpos(data, '"atMostOnce":true') > 0 THEN 1 ELSE 0 END, coalesce(answer_key, ''),
		CASE WHEN state <> 'RUNNING' THEN 'OVER' WHEN phase IS NULL THEN 'RESERVED' WHEN phase = 'AWAITING' THEN 'AWAITING' ELSE 'DECIDED' END,
		CASE
			WHEN state <> 'RUNNING' THEN CASE WHEN phase IS NULL THEN '' WHEN state = 'FINISHED' THEN 'ANSWER' ELSE 'REFUSAL' END
			WHEN phase = 'AWAITING' THEN ''
			WHEN phase = 'ANSWERED' AND respond = 0 THEN 'TIMEOUT'
			WHEN answer IS NOT NULL THEN 'ANSWER'
			WHEN reason IS NOT NULL THEN 'REFUSAL'
			ELSE '' END,
		coalesce(answer, ''), coalesce(reason, ''), CASE WHEN scheduled IS NULL THEN 0 ELSE 1 END, token, deadline, queue_due, expires,
		CASE WHEN data = '{}' THEN '' ELSE data END
	FROM swarmiji_jobs WHERE queue LIKE 'swarmiji.deferred/%' AND unique_key IS NOT NULL
	ORDER BY unique_key, (state = 'RUNNING') DESC, run DESC, id DESC;

-- The lease by which one runner leads a queue.
CREATE TABLE swarmiji_queue_lease (
	fence      bigint NOT NULL,
	until      bigint NOT NULL,
	admissions bigint NOT NULL,
	queue      text COLLATE "C" PRIMARY KEY,
	status     text NOT NULL
);

INSERT INTO swarmiji_queue_lease (queue, fence, until, admissions, status)
	SELECT DISTINCT ON (name) name, token, queue_due, run, data FROM swarmiji_jobs WHERE queue = 'swarmiji.queues' AND queue_due IS NOT NULL ORDER BY name, id DESC;

DELETE FROM swarmiji_jobs WHERE queue IN ('swarmiji.early', 'swarmiji.queues') OR queue LIKE 'swarmiji.deferred/%';

-- Every job counts its attempts, and one with a retry_after its hand-outs in a run. Neither is in
-- the data any more.
ALTER TABLE swarmiji_jobs ADD COLUMN handouts bigint NOT NULL DEFAULT 0;

-- What was kept there is at the end of the data.
UPDATE swarmiji_jobs AS j SET
	handouts = k.handouts,
	attempts = greatest(j.attempts, k.handouts, coalesce(CAST(substring(k.books FROM '"runnerRetries":(\d{1,9})') AS bigint), 0) + CASE WHEN j.state = 'RUNNING' THEN 1 ELSE 0 END),
	data = left(j.data, length(j.data) - 1 - length(k.books)) || '}'
	FROM (SELECT b.id, b.books, coalesce(CAST(substring(b.books FROM '"retryAfterCount":(\d{1,9})') AS bigint), 0) AS handouts FROM (
		SELECT id, CASE WHEN retry_after IS NULL THEN substring(data FROM '(,?"runnerRetries":\d+)\}$')
			ELSE substring(data FROM '((?:,?"(?:runnerRetries|retryAfterCount)":\d+|,?"originalNextRun":"[^"]*")+)\}$') END AS books
		FROM swarmiji_jobs WHERE queue IS NULL
			AND (data LIKE '%"runnerRetries":%' OR retry_after IS NOT NULL AND state <> 'QUEUED' AND data LIKE '%"retryAfterCount":%')) AS b) AS k
	WHERE j.id = k.id AND k.books IS NOT NULL;

UPDATE swarmiji_jobs SET attempts = 1 WHERE queue IS NULL AND attempts = 0 AND (state = 'RUNNING' OR state = 'RUNQUEUED' AND retry_after IS NOT NULL);

-- The messages of tasks with conditions, each of which is a job until it has ended.
CREATE TABLE swarmiji_job_message (
	job     bigint PRIMARY KEY,
	message text NOT NULL
);

INSERT INTO swarmiji_job_message (job, message) SELECT id, data FROM swarmiji_jobs WHERE queue IS NOT NULL AND answer_key LIKE 'swarmiji.task/%';

UPDATE swarmiji_jobs SET data = '{}' WHERE queue IS NOT NULL AND answer_key LIKE 'swarmiji.task/%';
