-- A message is "bound" from a claim on, if consumers of its queue have used bounds before. While its
-- lease lasts it counts.
ALTER TABLE swarmiji_fair_message ADD COLUMN bound boolean NOT NULL DEFAULT 0;

CREATE INDEX swarmiji_fair_message_bound ON swarmiji_fair_message (queue, key) WHERE bound;

-- The time up to which the rate of a key is used. The row with "whole" is of the queue itself. It
-- exists once a consumer of the queue has used bounds.
CREATE TABLE swarmiji_fair_bound (
	queue bigint NOT NULL,
	whole boolean NOT NULL,
	key   text NOT NULL,
	used  bigint NOT NULL,
	PRIMARY KEY (queue, whole, key)
) WITHOUT ROWID;

CREATE INDEX swarmiji_fair_bound_used ON swarmiji_fair_bound (queue, used) WHERE NOT whole;
