-- Times are microseconds since 1970. "key" and "holder" are quoted as a Go string in ASCII.
CREATE TABLE swarmiji_limit_hold (
	namespace text NOT NULL,
	key       text NOT NULL,
	holder    text NOT NULL,
	weight    integer NOT NULL,
	until     integer NOT NULL, -- end of the lease
	PRIMARY KEY (namespace, key, holder)
) WITHOUT ROWID;

CREATE INDEX swarmiji_limit_hold_until ON swarmiji_limit_hold (until);

CREATE TABLE swarmiji_limit_rate (
	namespace text NOT NULL,
	key       text NOT NULL,
	used      integer NOT NULL, -- the time up to which the rate is used
	PRIMARY KEY (namespace, key)
) WITHOUT ROWID;

CREATE INDEX swarmiji_limit_rate_used ON swarmiji_limit_rate (used);
