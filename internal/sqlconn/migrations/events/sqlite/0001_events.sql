-- Times are microseconds since 1970. A row of "swarmiji_event" is a message of some events.
CREATE TABLE swarmiji_event (
	seq       integer PRIMARY KEY AUTOINCREMENT,
	namespace text NOT NULL,
	live      integer NOT NULL, -- 1: subscriptions receive it
	kept      integer NOT NULL, -- number of its events that are retained; 0: none
	at        integer NOT NULL, -- when it was written
	expires   integer NOT NULL,
	body      blob NOT NULL     -- a list of events in the wire format
);

CREATE INDEX swarmiji_event_live ON swarmiji_event (namespace, seq) WHERE live = 1;
CREATE INDEX swarmiji_event_kept ON swarmiji_event (namespace, seq, kept, at, expires) WHERE kept > 0;
CREATE INDEX swarmiji_event_expires ON swarmiji_event (expires);

-- A bus with subscriptions. Publishers write only the types that a row names.
CREATE TABLE swarmiji_event_listener (
	namespace text NOT NULL,
	id        text NOT NULL,
	types     text NOT NULL,    -- a JSON list; '' is all types
	begun     integer NOT NULL, -- since when the row names these types without a pause
	until     integer NOT NULL, -- end of its lease
	PRIMARY KEY (namespace, id)
) WITHOUT ROWID;

-- The number of retained events that were removed. Readers count missed events with it.
CREATE TABLE swarmiji_event_removed (
	namespace text PRIMARY KEY NOT NULL,
	events    integer NOT NULL
) WITHOUT ROWID;
