-- "last" is the newest revision of a namespace.
CREATE TABLE swarmiji_setting_last (
	namespace text PRIMARY KEY NOT NULL,
	last      integer NOT NULL
) WITHOUT ROWID;

CREATE TABLE swarmiji_setting (
	namespace text NOT NULL,
	key       text NOT NULL,
	revision  integer NOT NULL,
	value     blob NOT NULL,
	PRIMARY KEY (namespace, key)
) WITHOUT ROWID;
