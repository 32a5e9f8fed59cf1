-- Times are microseconds since 1970, in UTC; null: none. An empty text, and a parent of 0, is null.
CREATE TABLE swarmiji_job (
	id           integer PRIMARY KEY AUTOINCREMENT,
	name         text NOT NULL,
	state        text NOT NULL,
	priority     integer NOT NULL,
	created      integer,
	changed      integer,
	next_run     integer,
	last_run     integer,
	scheduled    integer,
	due          integer,
	parent       integer,
	has_children integer NOT NULL,
	mock         integer NOT NULL,
	run          integer NOT NULL,
	token        integer NOT NULL,
	repeat       text,
	retry_after  text,
	sequence_key text,
	reason       text,
	data         text NOT NULL
);

CREATE INDEX swarmiji_job_name_id ON swarmiji_job (name);
-- What may be handed out, by name and by pattern. Jobs with mock have an index of their own, so that they are in nobody's way.
CREATE INDEX swarmiji_job_due_name ON swarmiji_job (name, priority, due) WHERE due IS NOT NULL AND mock = 0;
CREATE INDEX swarmiji_job_due ON swarmiji_job (priority, due) WHERE due IS NOT NULL AND mock = 0;
CREATE INDEX swarmiji_job_due_mock ON swarmiji_job (priority, due) WHERE due IS NOT NULL AND mock = 1;
CREATE INDEX swarmiji_job_parent ON swarmiji_job (parent) WHERE parent IS NOT NULL;
CREATE INDEX swarmiji_job_sequence ON swarmiji_job (sequence_key) WHERE sequence_key IS NOT NULL;

-- The names that jobs have, and some that they had. seq tells what is new to a process.
CREATE TABLE swarmiji_job_name (
	seq  integer PRIMARY KEY AUTOINCREMENT,
	name text NOT NULL UNIQUE
);
