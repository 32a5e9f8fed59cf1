// Package redisschedule stores a schedule in Redis, in the two keys that WorkKit published.
// Programs in other languages can add entries to the same schedule and run them.
//
// # Layout
//
// S is the name of the schedule, unchanged. On a cluster it has a hash tag, as in "{app-tasks}", so
// that all keys are in one slot.
//
//	S:jobs      hash: id -> payload. The id is the SHA-1 of the payload's bytes in
//	            40 lower-case hex digits. The payload is a JSON object with at least
//	            "cron" (seven fields, the year first, UTC), "job" and "args" (a list)
//	S:next      sorted set: {"id":"ID"}; the score is the due time in milliseconds
//	            since 1970
//	S:swarmiji  hash, created when first used: "paused:ID" -> 1,
//	            "state:ID" -> the carried state, "last:ID" -> the instant of the last
//	            tick in milliseconds, "runs:ID" -> those of the last five, both for
//	            entries with a name and those that must not overlap.
//	            "version:ID" -> a number that differs after each change, "group:ID" ->
//	            the name of the group. "revision:GROUP" -> the revision of a group,
//	            "members:GROUP" -> a JSON list of ids, each followed by its member
//	S:swarmiji:jobs, S:swarmiji:next
//	            the same as the first two, for entries with a name, and those whose
//	            times seven cron fields in UTC cannot express; other programs do not
//	            see them
//
// For example:
//
//	HSETNX app-tasks:jobs 8d1ea67747842d56fd5c06ba050885226d73bead
//	  {"args":["Beep!"],"cron":"2014 3 * 0/2,3 9-17 * */5","job":"#'clojure.core/println"}
//	ZADD app-tasks:next 1394010000000 {"id":"8d1ea67747842d56fd5c06ba050885226d73bead"}
//
// Entries of other programs may have any form of JSON and additional fields. Their ids are not
// calculated again.
//
// # Claims
//
// The listener of WorkKit removes an entry from S:next and adds it again before the run, or deletes
// it after the run. If it dies in between, the entry is lost. In this package a tick stays in
// S:next during its run. One script replaces its member by
//
//	{"id":"ID","due":1394010000000,"by":"NODE"}
//
// with the end of the lease as score, and gives the entry its next due time. After the run the
// member is removed, and the payload of a one-shot entry too. If the owner dies, the member is due
// at the end of the lease, and another listener runs the tick of that instant.
//
// A WorkKit listener that shares the schedule reads the "id" of any member. Rarely, it takes a
// claim for an entry: it takes the first member, due or not, and puts it back. If it dies in
// between, the entry is missing in S:next. [Store.Unscheduled] finds such entries, and a
// schedule.Listener gives them a due time after its Grace.
package redisschedule
