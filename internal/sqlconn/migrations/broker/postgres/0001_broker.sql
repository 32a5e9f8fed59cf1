-- Times are microseconds since 1970 on the server's clock. Rows of "swarmiji_queue" are never
-- removed by Swarmiji.
CREATE TABLE swarmiji_queue (
	id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	namespace text COLLATE "C" NOT NULL,
	name      text COLLATE "C" NOT NULL,
	levels    text COLLATE "C" NOT NULL, -- upper bounds with commas; '' is one level
	dropped   bigint NOT NULL DEFAULT 0, -- dead letters that the limits have removed
	UNIQUE (namespace, name)
);

-- A message is held until "leased". "token" is that of the claim that holds it or held it last.
-- A claim changes no column of an index, so that PostgreSQL writes no index entry (HOT).
CREATE TABLE swarmiji_message (
	queue        bigint NOT NULL,
	level        bigint NOT NULL,
	due          bigint NOT NULL, -- not delivered before
	seq          bigint GENERATED ALWAYS AS IDENTITY,
	id           text COLLATE "C" NOT NULL,
	generation   bigint NOT NULL,
	leased       bigint NOT NULL DEFAULT 0,
	token        bigint NOT NULL DEFAULT 0,
	deliveries   bigint NOT NULL DEFAULT 0,
	priority     bigint NOT NULL,
	expires      bigint NOT NULL, -- 0: never
	content_type text COLLATE "C" NOT NULL,
	meta         bytea,
	body         bytea NOT NULL,
	PRIMARY KEY (queue, id, generation)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02);

ALTER TABLE swarmiji_message ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE INDEX swarmiji_message_due ON swarmiji_message (queue, level, due, seq);

CREATE TABLE swarmiji_dead (
	queue        bigint NOT NULL,
	seq          bigint GENERATED ALWAYS AS IDENTITY,
	at           bigint NOT NULL, -- when it was dead-lettered
	reason       bytea NOT NULL,
	stack        bytea NOT NULL,
	attempts     bigint NOT NULL,
	id           text COLLATE "C" NOT NULL,
	generation   bigint NOT NULL,
	priority     bigint NOT NULL,
	expires      bigint NOT NULL,
	content_type text COLLATE "C" NOT NULL,
	meta         bytea,
	body         bytea NOT NULL,
	PRIMARY KEY (queue, seq)
);

ALTER TABLE swarmiji_dead ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE INDEX swarmiji_dead_at ON swarmiji_dead (queue, at);

-- The notes of starts of one message, a JSON list. Removed 24 h after the last note.
CREATE TABLE swarmiji_start (
	queue      bigint NOT NULL,
	id         text COLLATE "C" NOT NULL,
	generation bigint NOT NULL,
	notes      text COLLATE "C" NOT NULL,
	noted      bigint NOT NULL,
	PRIMARY KEY (queue, id, generation)
);

CREATE INDEX swarmiji_start_noted ON swarmiji_start (noted);

-- A node that noted starts. "beat" grows each second while its process lives.
CREATE TABLE swarmiji_node (
	namespace text COLLATE "C" NOT NULL,
	node      text COLLATE "C" NOT NULL,
	beat      bigint NOT NULL,
	gone      integer NOT NULL, -- 1: it left in order
	seen      bigint NOT NULL,
	PRIMARY KEY (namespace, node)
);

CREATE INDEX swarmiji_node_seen ON swarmiji_node (seen);
