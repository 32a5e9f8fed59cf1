-- Fair queues have negative ids. They were added after "swarmiji_message": a process of an earlier
-- version takes such a queue for one of its own, and must not store a message where nobody looks.
CREATE TRIGGER swarmiji_message_not_fair BEFORE INSERT ON swarmiji_message WHEN NEW.queue < 0
BEGIN
	SELECT RAISE(ABORT, 'this version of Swarmiji cannot use a fair queue');
END;

-- The messages of fair queues. The columns are those of "swarmiji_message", and three more. A
-- delayed message is not "ready" before it is due. A held message stays "ready".
CREATE TABLE swarmiji_fair_message (
	seq          integer PRIMARY KEY,
	queue        bigint NOT NULL,
	level        bigint NOT NULL,
	due          bigint NOT NULL,
	id           text NOT NULL,
	generation   bigint NOT NULL,
	leased       bigint NOT NULL DEFAULT 0,
	token        bigint NOT NULL DEFAULT 0,
	deliveries   bigint NOT NULL DEFAULT 0,
	priority     bigint NOT NULL,
	expires      bigint NOT NULL,
	content_type text NOT NULL,
	meta         blob,
	body         blob NOT NULL,
	key          text NOT NULL,
	weight       bigint NOT NULL,
	ready        boolean NOT NULL,
	UNIQUE (queue, id, generation)
);

-- The keys of a level are a ring in this index.
CREATE INDEX swarmiji_fair_message_ring ON swarmiji_fair_message (queue, level, key, due, seq) WHERE ready;

CREATE INDEX swarmiji_fair_message_delayed ON swarmiji_fair_message (queue, due, seq) WHERE NOT ready;
