-- The checkpoints of a task, as one value with the fencing token of the attempt that used them last.
-- "expires" is as in swarmiji_result.
CREATE TABLE swarmiji_result_checkpoint (
	namespace text COLLATE "C" NOT NULL,
	id        text COLLATE "C" NOT NULL,
	expires   bigint NOT NULL,
	value     bytea NOT NULL,
	PRIMARY KEY (namespace, id)
);

CREATE INDEX swarmiji_result_checkpoint_expires ON swarmiji_result_checkpoint (expires);
