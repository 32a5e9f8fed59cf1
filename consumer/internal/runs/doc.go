// Package runs counts the runs of tasks in a consumer: [Registry] those whose handlers run, [Set] those
// that wait, [Slots] how many may run at once, and [Leases] the contexts that end when the broker takes
// a delivery back.
package runs
