-- Times are microseconds since 1970 on the server's clock. A row of "swarmiji_event" is a message
-- of some events. Transactions of one namespace commit in the order of "seq": each holds an
-- advisory lock while it takes its number.
CREATE TABLE swarmiji_event (
	seq       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	namespace text COLLATE "C" NOT NULL,
	live      integer NOT NULL, -- 1: subscriptions receive it
	kept      bigint NOT NULL,  -- number of its events that are retained; 0: none
	at        bigint NOT NULL,  -- when it was written
	expires   bigint NOT NULL,
	body      bytea NOT NULL    -- a list of events in the wire format
) WITH (autovacuum_vacuum_scale_factor = 0.02);

ALTER TABLE swarmiji_event ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE INDEX swarmiji_event_live ON swarmiji_event (namespace, seq) WHERE live = 1;
CREATE INDEX swarmiji_event_kept ON swarmiji_event (namespace, seq) INCLUDE (kept, at, expires) WHERE kept > 0;
CREATE INDEX swarmiji_event_expires ON swarmiji_event (expires);

-- A bus with subscriptions. Publishers write only the types that a row names.
CREATE TABLE swarmiji_event_listener (
	namespace text COLLATE "C" NOT NULL,
	id        text COLLATE "C" NOT NULL,
	types     text COLLATE "C" NOT NULL, -- a JSON list; '' is all types
	begun     bigint NOT NULL,           -- since when the row names these types without a pause
	until     bigint NOT NULL,           -- end of its lease
	PRIMARY KEY (namespace, id)
);

-- The number of retained events that were removed. Readers count missed events with it.
CREATE TABLE swarmiji_event_removed (
	namespace text COLLATE "C" PRIMARY KEY,
	events    bigint NOT NULL
);
