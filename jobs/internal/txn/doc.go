// Package txn runs transactions over jobs. It takes locks in a fixed order, starts a transaction
// again when locks are missing, and lets several changes share a commit.
//
// The order of locks: sequence keys, unique names together with unique keys, keys of answers,
// parents, then jobs by id, then deferrals by task.
//
// Step.Locks holds the locks of a transaction. Which locks a change needs is known only after its
// job was read. A function that misses a lock, or needs a job with a lower id than a locked job,
// returns [ErrLocks]. The transaction then starts again with the additional locks.
package txn
