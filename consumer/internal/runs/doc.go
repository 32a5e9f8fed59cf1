// Package runs tracks the runs of tasks in a consumer.
//
//   - [Registry] holds the runs whose handlers run.
//   - [Set] holds the runs that wait.
//   - [Slots] limits how many run at once.
//   - [Leases] makes contexts that end when the broker takes a delivery back.
package runs
