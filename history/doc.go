// Package history records what happened to each task. A task is found hours after its end, among a
// million others.
//
// A [Recorder] listens to an event bus and writes the events to a [Store]: one [Record] per task,
// with its timeline. Any number of recorders may listen at once, and no task waits for them. Events
// are delivered at most once, so a history may have gaps. The recorder counts dropped events and
// stores their time, and a [Page] names these times.
//
// # Queries
//
// The query language is the same for all stores, see [Parse]:
//
//	state:failed name:mail.* queue:orders header.tenant=42 error~timeout since:1h
//
// All terms of a query must match. A page lists records by the time of their last change, the
// newest first.
//
// # Order
//
// Events of a task arrive in any order, late, or twice. [Facts] merge them so that the result does
// not depend on that: the state is that of the last entry of the timeline, which is ordered by
// life, attempt, generation and kind. A requeued task begins a new life.
package history
