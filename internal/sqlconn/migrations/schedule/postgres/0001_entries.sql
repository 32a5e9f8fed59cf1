-- Times are milliseconds since 1970, in UTC. An entry without a next time is not due.
CREATE TABLE swarmiji_schedule_entry (
	schedule text COLLATE "C" NOT NULL,
	id       text COLLATE "C" NOT NULL,
	payload  bytea NOT NULL,
	next     bigint,
	paused   integer NOT NULL DEFAULT 0,
	last     bigint,
	state    bytea,
	PRIMARY KEY (schedule, id)
);

CREATE INDEX swarmiji_schedule_entry_due ON swarmiji_schedule_entry (schedule, next) WHERE next IS NOT NULL;

-- A claim on the tick of an entry that was due at "due". When "until" has passed, the tick is due again.
CREATE TABLE swarmiji_schedule_claim (
	schedule text COLLATE "C" NOT NULL,
	id       text COLLATE "C" NOT NULL,
	due      bigint NOT NULL,
	owner    text NOT NULL,
	until    bigint NOT NULL,
	PRIMARY KEY (schedule, id, due)
);

CREATE INDEX swarmiji_schedule_claim_until ON swarmiji_schedule_claim (schedule, until);
