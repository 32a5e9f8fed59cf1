-- Times are microseconds since 1970. A message is deleted when its broker has confirmed it. "seq" is
-- never used again.
CREATE TABLE swarmiji_outbox (
	seq          integer PRIMARY KEY AUTOINCREMENT,
	namespace    text NOT NULL,
	bucket       bigint NOT NULL,
	order_key    text NOT NULL, -- '': none
	queue        text NOT NULL,
	at           bigint NOT NULL, -- not delivered before; 0: at once
	from_now     bigint NOT NULL, -- 1: "at" is on the clock of the database; 0: on that of the program
	stored       bigint NOT NULL,
	id           text NOT NULL,
	generation   bigint NOT NULL,
	priority     bigint NOT NULL,
	expires      bigint NOT NULL, -- 0: never
	content_type text NOT NULL,
	meta         blob NOT NULL,
	body         blob NOT NULL,
	failures     bigint NOT NULL DEFAULT 0,
	retry        bigint NOT NULL DEFAULT 0, -- when a failed message is tried again; 0: not failed
	reason       text NOT NULL DEFAULT '',
	UNIQUE (namespace, id, generation, queue)
);

CREATE INDEX swarmiji_outbox_ready ON swarmiji_outbox (namespace, bucket, seq) WHERE retry = 0;
CREATE INDEX swarmiji_outbox_failed ON swarmiji_outbox (namespace, bucket, retry) WHERE retry > 0;
CREATE INDEX swarmiji_outbox_stopped ON swarmiji_outbox (namespace, bucket, order_key)
	WHERE retry > 0 AND order_key <> '';

-- Messages that can never be sent.
CREATE TABLE swarmiji_outbox_dead (
	seq          integer PRIMARY KEY, -- the former seq of the message
	died         bigint NOT NULL,
	reason       text NOT NULL,
	namespace    text NOT NULL,
	bucket       bigint NOT NULL,
	order_key    text NOT NULL,
	queue        text NOT NULL,
	at           bigint NOT NULL,
	from_now     bigint NOT NULL,
	stored       bigint NOT NULL,
	id           text NOT NULL,
	generation   bigint NOT NULL,
	priority     bigint NOT NULL,
	expires      bigint NOT NULL,
	content_type text NOT NULL,
	meta         blob NOT NULL,
	body         blob NOT NULL
);

CREATE INDEX swarmiji_outbox_dead_id ON swarmiji_outbox_dead (namespace, id);

-- A relay holds its buckets until "until".
CREATE TABLE swarmiji_outbox_bucket (
	namespace text NOT NULL,
	bucket    bigint NOT NULL,
	owner     text NOT NULL, -- a relay; '': none
	until     bigint NOT NULL,
	PRIMARY KEY (namespace, bucket)
);

-- The live relays, also those that wait for buckets.
CREATE TABLE swarmiji_outbox_relay (
	namespace text NOT NULL,
	relay     text NOT NULL,
	until     bigint NOT NULL,
	PRIMARY KEY (namespace, relay)
);
