// Package inspect shows a running system and changes it: queues, tasks, dead letters, workflows,
// schedules, jobs, workers, events and the audit log. The program swarmiji and dashboards use it.
//
// [API] is the interface. [New] returns its local implementation over the parts that are given:
// broker, result store, event bus and others. A method whose part is missing returns
// [ErrUnsupported] with the setting that helps. The package inspecttest is the suite of all
// implementations.
//
// # Rules of the interface
//
//   - Each method takes a context and at most one argument, a struct or a name, and returns one
//     struct. JSON can carry each of them, and the names of its fields do not change.
//   - Lists come in pages. A query has Limit and Cursor, a page has Next: the cursor of the next
//     page, "" after the last one. A cursor is opaque. Default of Limit: [DefaultLimit], at most
//     [MaxLimit].
//   - Errors are [*Error]. They match one of the sentinels, also behind a network.
//   - A number that is not known is -1.
//
// # Changes
//
// A method that changes something returns a [Change]. With DryRun it only counts. One call changes
// at most [MaxBulk] records, and says with Change.More that there may be more.
//
// Each change that was tried is reported as an event of the type [AuditEvent]: the caller, the
// time, the change, the number of records, and the error. [WithActor] names the caller. A dry run
// is not reported.
package inspect
