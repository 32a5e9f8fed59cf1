// Package redis keeps results in Redis as Celery's Redis backend does. Python programs read what Go
// consumers store, and Go submitters read what Python workers store. The parts of one chord may run
// in Go and in Python: both count in the same keys.
//
// # Layout
//
// Celery's keys, each after [Config.KeyPrefix]:
//
//	celery-task-meta-<task id>      string   the document of a result; also the name of its channel
//	celery-taskset-meta-<group>.j   zset     the ends of a chord's parts, by their index
//	celery-taskset-meta-<group>.s   string   the number of parts
//	celery-taskset-meta-<group>.t   string   parts added later
//
// Keys of this package:
//
//	swarmiji-chord-<group>          hash     the ends of the parts that Go ran, see arrive.lua
//	swarmiji-begun-<task id>        string   the running copy of the task behind a chord
//
// # Differences
//
//   - Documents are compared before they are replaced, so that Save never replaces a newer or a
//     final one. Python programs replace all but a success.
//   - A chord fails when a part fails that Go runs, and later parts change nothing. After a failure
//     in Python it waits for all parts.
//   - Celery sends each document to the channel of its task. A stream of notifications gets the
//     documents of all tasks, and drops those for other nodes.
//   - Redis Cluster and Sentinel are not supported. On a cluster Celery's keys of one chord are on
//     different nodes.
//   - The store neither claims keys nor keeps checkpoints.
package redis
