-- Times are milliseconds since 1970, in UTC. An entry without a next time is not due.
CREATE TABLE swarmiji_schedule_entry (
	schedule text NOT NULL,
	id       text NOT NULL,
	payload  blob NOT NULL,
	next     bigint,
	paused   integer NOT NULL DEFAULT 0,
	last     bigint,
	state    blob,
	PRIMARY KEY (schedule, id)
);

CREATE INDEX swarmiji_schedule_entry_due ON swarmiji_schedule_entry (schedule, next) WHERE next IS NOT NULL;

-- A claim on the tick of an entry that was due at "due". When "until" has passed, the tick is due again.
CREATE TABLE swarmiji_schedule_claim (
	schedule text NOT NULL,
	id       text NOT NULL,
	due      bigint NOT NULL,
	owner    text NOT NULL,
	until    bigint NOT NULL,
	PRIMARY KEY (schedule, id, due)
) WITHOUT ROWID;

CREATE INDEX swarmiji_schedule_claim_until ON swarmiji_schedule_claim (schedule, until);
