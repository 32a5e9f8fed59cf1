-- Times are microseconds since 1970 on the server's clock. "key" and "holder" are quoted as a Go
-- string in ASCII. A transaction that changes a limit holds an advisory lock of its key.
CREATE TABLE swarmiji_limit_hold (
	namespace text COLLATE "C" NOT NULL,
	key       text COLLATE "C" NOT NULL,
	holder    text COLLATE "C" NOT NULL,
	weight    bigint NOT NULL,
	until     bigint NOT NULL, -- end of the lease
	PRIMARY KEY (namespace, key, holder)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX swarmiji_limit_hold_until ON swarmiji_limit_hold (until);

CREATE TABLE swarmiji_limit_rate (
	namespace text COLLATE "C" NOT NULL,
	key       text COLLATE "C" NOT NULL,
	used      bigint NOT NULL, -- the time up to which the rate is used
	PRIMARY KEY (namespace, key)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX swarmiji_limit_rate_used ON swarmiji_limit_rate (used);
