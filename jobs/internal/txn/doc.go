// Package txn makes transactions over jobs: it takes locks in one order, begins again when some are
// missing, and lets several changes share a commit.
//
// The order of locks: sequence keys, unique names, unique keys, keys of answers, parents, then jobs
// by id. Step.Locks holds what a transaction needs. Which locks those are is known only when the
// job has been read. A function that finds a lock missing returns [ErrLocks], and runs again.
package txn
