// Package redisresults keeps results in Redis. Each task has a key that expires, and each submitter
// has a channel for notifications. Any process that knows the id of a task can load its record,
// also long after the task ended. The package works with a single server, Sentinel and Redis
// Cluster.
//
// # Layout
//
// These names and forms are public. Other programs may read them, and later versions of this
// package will read them.
//
//	swj:res:{<namespace>.<task id>}     string   the record of a task
//	swj:checkpoints:{<namespace>.<task id>}  hash  the checkpoints of a task, see checkpoint.lua
//	swj:group:{<namespace>.<group id>}  hash     the ended members of a group, see gather.lua
//	swj:begun:{<namespace>.<task id>}   string   the running copy of a successor, see claim.lua
//	swj:claim:{<namespace>.<key>}       string   the holder of a key, see claim.lua
//	swj:value:{<namespace>.<key>}       string   the record of a burst, see swap.lua
//	swj:reply:<namespace>:<node>        channel  the final records for the submitter <node>
//
// All keys expire. A claim is described in [resultstore.Claimer].
//
// A namespace has no '.', ':' or '}', so two namespaces never share a name. The braces make Redis
// Cluster spread the records over all nodes.
//
// The value of a record is a line of text and, after it, the record as a msgpack map with small
// integers as keys. Reply queues carry the same msgpack form.
//
//	<generation>.<deliveries> <state> <end>\n<msgpack>
//
// The first two numbers are the fencing token. <end> is "final" for a terminal state and "open"
// otherwise. The script save.lua reads only this line. It refuses a record that is older than the
// stored record or follows a final one.
//
// A message on a channel is the whole value of a record. If the value is larger than
// [Config.MaxNotice], the message is "=<task id>" and the listener loads the record. Channels
// belong to the whole server, not to one of its numbered databases. Two stores in two databases of
// one server therefore need two namespaces.
//
// # Promises
//
// When Save returns, the record is stored as durably as the server is configured. With appendfsync
// everysec the crash of a machine may lose the last second. A failover to a replica may lose
// records that had not reached the replica.
//
// Saving the same record again changes nothing. If a connection is lost and the outcome of a Save
// is unknown, the store therefore repeats the Save until its ctx ends.
//
// Notifications are hints. Those sent while the connection was lost are missed, and the submitter
// finds the records with Load.
//
// A server that is out of memory, or that became a replica, stores no records: Save returns
// [resultstore.ErrUnavailable]. Under an eviction policy other than noeviction or volatile-ttl the
// server may remove records before they expire.
package redisresults
