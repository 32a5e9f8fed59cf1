-- "last" is the newest revision of a namespace. A transaction that changes a value first updates
-- this row, so that one change follows the other.
CREATE TABLE swarmiji_setting_last (
	namespace text COLLATE "C" PRIMARY KEY NOT NULL,
	last      bigint NOT NULL
);

CREATE TABLE swarmiji_setting (
	namespace text COLLATE "C" NOT NULL,
	key       text COLLATE "C" NOT NULL,
	revision  bigint NOT NULL,
	value     bytea NOT NULL,
	PRIMARY KEY (namespace, key)
);
