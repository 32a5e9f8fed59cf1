// Package redisschedule keeps a schedule in Redis, in the two keys that WorkKit published, so that programs in other languages may add
// entries to it and listen to it as well.
//
// # Layout
//
// S is the name of the schedule, as it is. On a cluster it has a hash tag, as in "{app-tasks}", so that the keys lie in one slot.
//
//	S:jobs      hash: id -> payload. The id is the SHA-1 of the payload's bytes in 40 lower-case hex digits; the payload is a JSON
//	            object with at least "cron" (seven fields, the year first, UTC), "job" and "args" (a list)
//	S:next      sorted set: {"id":"ID"} by the milliseconds since 1970 at which the entry is due
//	S:swarmiji  hash, made when first used: "paused:ID" -> 1, "state:ID" -> what the last run left, "last:ID" -> the instant of the last
//	            tick, in milliseconds, for entries that must not overlap
//	S:swarmiji:jobs, S:swarmiji:next
//	            the same as the first two, for entries that seven fields of UTC cannot say; other programs do not see them
//
// For example:
//
//	HSETNX app-tasks:jobs 8d1ea67747842d56fd5c06ba050885226d73bead {"args":["Beep!"],"cron":"2014 3 * 0/2,3 9-17 * */5","job":"#'clojure.core/println"}
//	ZADD app-tasks:next 1394010000000 {"id":"8d1ea67747842d56fd5c06ba050885226d73bead"}
//
// Entries of others are taken in any form that JSON allows, with any further fields, and their ids are not worked out again.
//
// # Claims
//
// WorkKit's own listener takes an entry out of S:next and puts it back before it runs, or removes it afterwards; if it dies in between,
// the entry is lost. Here a tick stays in S:next while it runs: one script replaces its member by
//
//	{"id":"ID","due":1394010000000,"by":"NODE"}
//
// whose score is the end of the lease, and gives the entry its next time. The member goes when the run has ended, and a one-shot's
// payload with it. If its owner dies, the member is due with the end of the lease, and another listener runs the tick of that instant.
//
// An old listener that shares the schedule reads the "id" of any member. It can, rarely, take a claim for an entry, since it takes the first
// member, due or not, and puts it back. What it takes out of S:next and does not bring back, since it died, is found by
// [Store.Astray], and gets a time from a schedule.Listener after its grace time.
package redisschedule
