// Package txn makes transactions over jobs. It takes locks in one order, starts again when some are
// missing, and lets several changes share a commit.
//
// The order of locks: sequence keys, unique names, unique keys, keys of answers, parents, then jobs
// by id, then deferrals by task. Step.Locks holds the locks of a transaction. Which locks a change
// needs is known only when its job has been read. A function that finds a lock missing returns
// [ErrLocks], and runs again.
package txn
