-- version counts the changes of an entry. runs has the instants of its last runs, the newest first.
ALTER TABLE swarmiji_schedule_entry ADD COLUMN version bigint NOT NULL DEFAULT 0;
ALTER TABLE swarmiji_schedule_entry ADD COLUMN runs text NOT NULL DEFAULT '';
ALTER TABLE swarmiji_schedule_entry ADD COLUMN grp text NOT NULL DEFAULT '';

CREATE INDEX swarmiji_schedule_entry_grp ON swarmiji_schedule_entry (schedule, grp) WHERE grp <> '';

-- The revision that the entries of a group have.
CREATE TABLE swarmiji_schedule_group (
	schedule text NOT NULL,
	name     text NOT NULL,
	revision bigint NOT NULL,
	PRIMARY KEY (schedule, name)
) WITHOUT ROWID;
