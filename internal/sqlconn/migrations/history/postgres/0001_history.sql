-- Times are milliseconds since 1970 by the clocks of the nodes, spans are nanoseconds.
CREATE TABLE swarmiji_history_space (
	ns        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	namespace text COLLATE "C" NOT NULL UNIQUE,
	records   bigint NOT NULL, -- rows of swarmiji_history
	seen      bigint NOT NULL  -- when a recorder has written last
);

-- Names that many tasks have in common. Number 0 stands for ''.
CREATE TABLE swarmiji_history_label (
	id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	ns   bigint NOT NULL,
	kind bigint NOT NULL, -- 1 task name, 2 queue, 3 class of errors, 4 name of a header
	text text COLLATE "C" NOT NULL,
	UNIQUE (ns, kind, text)
);

CREATE TABLE swarmiji_history (
	seq      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	ns       bigint NOT NULL,
	id       text COLLATE "C" NOT NULL,
	state    bigint NOT NULL, -- the number of history.States, from 1; 10: failed with a dead letter
	changed  bigint NOT NULL,
	name     bigint NOT NULL, -- a label, as queue and class
	queue    bigint NOT NULL,
	class    bigint NOT NULL,
	node     text COLLATE "C" NOT NULL,
	parent   text COLLATE "C" NOT NULL,
	root     text COLLATE "C" NOT NULL, -- '': the task itself
	grp      text COLLATE "C" NOT NULL,
	wait     bigint NOT NULL, -- -1: not known, as run
	run      bigint NOT NULL,
	attempts bigint NOT NULL,
	error    text COLLATE "C" NOT NULL,
	facts    bytea NOT NULL, -- JSON, see history.Facts
	UNIQUE (ns, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- The conditions of the next two indexes hold for all rows. Only statements that have them use the index: without
-- good statistics the server would read all records by one of them, to find or to sort those that it could read by the other.
CREATE INDEX swarmiji_history_changed ON swarmiji_history (ns, changed, seq) WHERE seq > 0;
CREATE INDEX swarmiji_history_state ON swarmiji_history (ns, state, changed, seq) WHERE state > 0;
CREATE INDEX swarmiji_history_name ON swarmiji_history (name, changed, seq);
CREATE INDEX swarmiji_history_queue ON swarmiji_history (queue, changed, seq);
CREATE INDEX swarmiji_history_class ON swarmiji_history (class, changed, seq) WHERE class > 0;
CREATE INDEX swarmiji_history_error ON swarmiji_history (ns, changed, seq) WHERE error <> '';
CREATE INDEX swarmiji_history_root ON swarmiji_history (ns, root, changed, seq) WHERE root <> '';
CREATE INDEX swarmiji_history_grp ON swarmiji_history (ns, grp, changed, seq) WHERE grp <> '';

-- The headers of the tasks, and when these have changed.
CREATE TABLE swarmiji_history_header (
	seq     bigint NOT NULL, -- of swarmiji_history
	label   bigint NOT NULL,
	value   text COLLATE "C" NOT NULL,
	changed bigint NOT NULL,
	PRIMARY KEY (seq, label)
);

CREATE INDEX swarmiji_history_header_value ON swarmiji_history_header (label, value, changed, seq);

-- Entries of timelines by minute.
CREATE TABLE swarmiji_history_minute (
	ns     bigint NOT NULL,
	minute bigint NOT NULL, -- its beginning
	queue  bigint NOT NULL, -- a label, as name
	name   bigint NOT NULL,
	kind   text COLLATE "C" NOT NULL,
	n      bigint NOT NULL,
	wait   bigint NOT NULL, -- sum, as run
	run    bigint NOT NULL,
	PRIMARY KEY (ns, minute, queue, name, kind)
);

-- Times of which a recorder has missed events.
CREATE TABLE swarmiji_history_gap (
	ns      bigint NOT NULL,
	since   bigint NOT NULL,
	until   bigint NOT NULL,
	dropped bigint NOT NULL, -- known number of events
	PRIMARY KEY (ns, since)
);
