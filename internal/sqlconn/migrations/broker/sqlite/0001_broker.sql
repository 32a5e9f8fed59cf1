-- Times are microseconds since 1970. Rows of "swarmiji_queue" are never removed by Swarmiji.
CREATE TABLE swarmiji_queue (
	id        integer PRIMARY KEY AUTOINCREMENT,
	namespace text NOT NULL,
	name      text NOT NULL,
	levels    text NOT NULL, -- upper bounds with commas; '' is one level
	dropped   bigint NOT NULL DEFAULT 0, -- dead letters that the limits have removed
	UNIQUE (namespace, name)
);

-- A message is held until "leased". "token" is that of the claim that holds it or held it last.
CREATE TABLE swarmiji_message (
	seq          integer PRIMARY KEY,
	queue        bigint NOT NULL,
	level        bigint NOT NULL,
	due          bigint NOT NULL, -- not delivered before
	id           text NOT NULL,
	generation   bigint NOT NULL,
	leased       bigint NOT NULL DEFAULT 0,
	token        bigint NOT NULL DEFAULT 0,
	deliveries   bigint NOT NULL DEFAULT 0,
	priority     bigint NOT NULL,
	expires      bigint NOT NULL, -- 0: never
	content_type text NOT NULL,
	meta         blob,
	body         blob NOT NULL,
	UNIQUE (queue, id, generation)
);

-- max(due, leased) is when the message can be claimed. A claim moves its messages away from the
-- beginning of the index.
CREATE INDEX swarmiji_message_due ON swarmiji_message (queue, level, max(due, leased), seq);

CREATE TABLE swarmiji_dead (
	seq          integer PRIMARY KEY AUTOINCREMENT,
	queue        bigint NOT NULL,
	at           bigint NOT NULL, -- when it was dead-lettered
	reason       blob NOT NULL,
	stack        blob NOT NULL,
	attempts     bigint NOT NULL,
	id           text NOT NULL,
	generation   bigint NOT NULL,
	priority     bigint NOT NULL,
	expires      bigint NOT NULL,
	content_type text NOT NULL,
	meta         blob,
	body         blob NOT NULL
);

CREATE INDEX swarmiji_dead_queue ON swarmiji_dead (queue, seq);
CREATE INDEX swarmiji_dead_at ON swarmiji_dead (queue, at);

-- The notes of starts of one message, a JSON list. Removed 24 h after the last note.
CREATE TABLE swarmiji_start (
	queue      bigint NOT NULL,
	id         text NOT NULL,
	generation bigint NOT NULL,
	notes      text NOT NULL,
	noted      bigint NOT NULL,
	PRIMARY KEY (queue, id, generation)
) WITHOUT ROWID;

CREATE INDEX swarmiji_start_noted ON swarmiji_start (noted);

-- A node that noted starts. "beat" grows each second while its process lives.
CREATE TABLE swarmiji_node (
	namespace text NOT NULL,
	node      text NOT NULL,
	beat      bigint NOT NULL,
	gone      integer NOT NULL, -- 1: it left in order
	seen      bigint NOT NULL,
	PRIMARY KEY (namespace, node)
) WITHOUT ROWID;

CREATE INDEX swarmiji_node_seen ON swarmiji_node (seen);
