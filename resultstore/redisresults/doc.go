// Package redisresults keeps results in Redis: a key for each task, which expires, and a channel for each submitter, on
// which it is told of its tasks' ends. Any process that knows a task's id finds its record, also long after its end. It
// works with a single server, Sentinel and Redis Cluster.
//
// # Layout
//
// These names and forms are public: other programs may read them, and later versions of this package will.
//
//	swj:res:{<namespace>.<task id>}    string, expires    the record of a task
//	swj:group:{<namespace>.<group id>} hash, expires      the members of a group that have ended, by index; see gather.lua
//	swj:begun:{<namespace>.<task id>}  string, expires    the copy of a successor that is run; see claim.lua
//	swj:claim:{<namespace>.<key>}      string, expires    the holder of a key; see [resultstore.Claimer] and claim.lua
//	swj:reply:<namespace>:<node>       channel            the final records of the tasks that <node> submitted
//
// A namespace has no '.', ':' or '}', so two of them share no name. The braces let Redis Cluster spread the records over all
// nodes.
//
// The value of a record is a line of text and, after it, the record as a msgpack map with small integers as keys (the
// form in which reply queues carry it as well):
//
//	<generation>.<deliveries> <state> <end>\n<msgpack>
//
// The first two numbers are the fencing token, and <end> is "final" for a terminal state, "open" otherwise. This line is
// all that the server's script looks at: save.lua, which refuses what is older than the record that is kept, and whatever
// comes after a final one.
//
// A message on a channel is the value of a record, the whole of it, or "=<task id>" where the value is larger than
// [Config.MaxNotice]: the listener then loads it. Channels belong to the whole server, not to one of its numbered
// databases; two stores in two databases of one server need two namespaces.
//
// # Promises
//
// A record is kept when Save returned, as durably as the server is configured to keep it: with appendfsync everysec the
// crash of a machine may cost the last second, and a failover to a replica may cost what had not reached it. Repeating a
// Save changes nothing, so the store repeats one by itself, within its ctx, when a connection was lost and nobody knows
// whether the server had taken it.
//
// Notifications are a hint: those of a time without connection are lost, and the submitter finds the records with Load.
//
// A server that is out of memory, or that was made a replica, takes no records: Save is [resultstore.ErrUnavailable].
// Under an eviction policy other than noeviction or volatile-ttl it may drop records before their time.
package redisresults
