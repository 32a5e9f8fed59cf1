// Package sqlhistory keeps the history of tasks in a SQL database: a SQLite file or PostgreSQL 13
// and newer. A store makes the tables at its first use, and newer versions update them.
//
// # Layout
//
//   - swarmiji_history has a row for each task: columns for queries, and the facts as JSON.
//   - swarmiji_history_label holds names that tasks have in common, so that rows are small.
//   - swarmiji_history_header holds the headers of tasks.
//   - swarmiji_history_minute holds counts, swarmiji_history_gap the gaps.
//   - swarmiji_history_space has a row for each namespace, which a recorder locks while it writes.
//
// # Queries
//
// A page examines index entries in the order of changes: of the one index whose term has the fewest
// entries. It filters them by the other terms, and ends after [history.MaxExamined] entries. So its
// time does not depend on the number of records.
package sqlhistory
