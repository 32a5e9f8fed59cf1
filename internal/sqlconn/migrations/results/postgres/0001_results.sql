-- Times are microseconds since 1970, in UTC. A row whose "expires" has passed is not there any more.
-- "xact" is the transaction that wrote the row, by which a stream knows what it has not seen.
CREATE TABLE swarmiji_result (
	namespace  text COLLATE "C" NOT NULL,
	id         text COLLATE "C" NOT NULL,
	generation bigint NOT NULL,
	deliveries bigint NOT NULL,
	state      text NOT NULL,
	final      integer NOT NULL,
	node       text COLLATE "C", -- that submitted the task, once the state is final
	xact       xid8 NOT NULL,
	expires    bigint NOT NULL,
	value      bytea NOT NULL,
	PRIMARY KEY (namespace, id)
);

CREATE INDEX swarmiji_result_node ON swarmiji_result (namespace, node, xact) WHERE node IS NOT NULL;
CREATE INDEX swarmiji_result_expires ON swarmiji_result (expires);

-- A group whose members are gathered. 0 is a size that is not known, -1 a decider that is not.
CREATE TABLE swarmiji_result_group (
	namespace text COLLATE "C" NOT NULL,
	id        text COLLATE "C" NOT NULL,
	size      bigint NOT NULL,
	done      bigint NOT NULL,
	failed    bigint NOT NULL,
	largest   bigint NOT NULL,
	decider   bigint NOT NULL,
	expires   bigint NOT NULL,
	PRIMARY KEY (namespace, id)
);

CREATE INDEX swarmiji_result_group_expires ON swarmiji_result_group (expires);

CREATE TABLE swarmiji_result_member (
	namespace text COLLATE "C" NOT NULL,
	id        text COLLATE "C" NOT NULL, -- of the group
	place     bigint NOT NULL,
	value     bytea NOT NULL,
	PRIMARY KEY (namespace, id, place)
);

-- The copy of a task that is run.
CREATE TABLE swarmiji_result_begun (
	namespace text COLLATE "C" NOT NULL,
	id        text COLLATE "C" NOT NULL,
	which     bytea NOT NULL,
	expires   bigint NOT NULL,
	PRIMARY KEY (namespace, id)
);

CREATE INDEX swarmiji_result_begun_expires ON swarmiji_result_begun (expires);
