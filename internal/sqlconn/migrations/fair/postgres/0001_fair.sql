-- Fair queues have negative ids. They were added after "swarmiji_message": a process of an earlier
-- version takes such a queue for one of its own, and must not store a message where nobody looks.
ALTER TABLE swarmiji_message ADD CONSTRAINT swarmiji_message_not_fair CHECK (queue > 0) NOT VALID;

-- The messages of fair queues. The columns are those of "swarmiji_message", and three more. A
-- delayed message is not "ready" before it is due. A held message stays "ready".
CREATE TABLE swarmiji_fair_message (
	queue        bigint NOT NULL,
	level        bigint NOT NULL,
	due          bigint NOT NULL,
	seq          bigint GENERATED ALWAYS AS IDENTITY,
	id           text COLLATE "C" NOT NULL,
	generation   bigint NOT NULL,
	leased       bigint NOT NULL DEFAULT 0,
	token        bigint NOT NULL DEFAULT 0,
	deliveries   bigint NOT NULL DEFAULT 0,
	priority     bigint NOT NULL,
	expires      bigint NOT NULL,
	content_type text COLLATE "C" NOT NULL,
	meta         bytea,
	body         bytea NOT NULL,
	key          text COLLATE "C" NOT NULL,
	weight       bigint NOT NULL,
	ready        boolean NOT NULL,
	PRIMARY KEY (queue, id, generation)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

ALTER TABLE swarmiji_fair_message ALTER COLUMN body SET STORAGE EXTERNAL;

-- The keys of a level are a ring in this index.
CREATE INDEX swarmiji_fair_message_ring ON swarmiji_fair_message (queue, level, key, due, seq) WHERE ready;

CREATE INDEX swarmiji_fair_message_delayed ON swarmiji_fair_message (queue, due, seq) WHERE NOT ready;
