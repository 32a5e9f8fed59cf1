-- Times are microseconds since 1970, in UTC. A row whose "expires" has passed is not there any more.
-- "seq" tells in which order rows were written; it grows with each, and is never used again.
CREATE TABLE swarmiji_result (
	seq        integer PRIMARY KEY AUTOINCREMENT,
	namespace  text NOT NULL,
	id         text NOT NULL,
	generation bigint NOT NULL,
	deliveries bigint NOT NULL,
	state      text NOT NULL,
	final      integer NOT NULL,
	node       text, -- that submitted the task, once the state is final
	expires    bigint NOT NULL,
	value      blob NOT NULL,
	UNIQUE (namespace, id)
);

CREATE INDEX swarmiji_result_node ON swarmiji_result (namespace, node, seq) WHERE node IS NOT NULL;
CREATE INDEX swarmiji_result_expires ON swarmiji_result (expires);

-- A group whose members are gathered. 0 is a size that is not known, -1 a decider that is not.
CREATE TABLE swarmiji_result_group (
	namespace text NOT NULL,
	id        text NOT NULL,
	size      bigint NOT NULL,
	done      bigint NOT NULL,
	failed    bigint NOT NULL,
	largest   bigint NOT NULL,
	decider   bigint NOT NULL,
	expires   bigint NOT NULL,
	PRIMARY KEY (namespace, id)
) WITHOUT ROWID;

CREATE INDEX swarmiji_result_group_expires ON swarmiji_result_group (expires);

CREATE TABLE swarmiji_result_member (
	namespace text NOT NULL,
	id        text NOT NULL, -- of the group
	place     bigint NOT NULL,
	value     blob NOT NULL,
	PRIMARY KEY (namespace, id, place)
);

-- The copy of a task that is run.
CREATE TABLE swarmiji_result_begun (
	namespace text NOT NULL,
	id        text NOT NULL,
	which     blob NOT NULL,
	expires   bigint NOT NULL,
	PRIMARY KEY (namespace, id)
) WITHOUT ROWID;

CREATE INDEX swarmiji_result_begun_expires ON swarmiji_result_begun (expires);
