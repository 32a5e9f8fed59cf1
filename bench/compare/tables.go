package main

import "slices"

// The tables: the targets for each engine, from issues and the README.

var wide = []string{"-concurrency", "256"}

const (
	tasks      = 50_000
	roundTrips = 2_000
	together   = 10_000
	waiting    = 1_000_000
)

// common returns the measurements that every engine has.
func common() []row {
	return []row{
		{name: "enqueue, 256 concurrent Submits", workload: "enqueue", n: tasks, flags: wide, raw: []string{}, figure: rate()},
		{name: "drain, prefetch 256, with results, against a client that stores them too", workload: "drain", n: tasks, flags: slices.Concat(wide, []string{"-results"}), raw: []string{}, figure: rate(), wanted: 0.7},
		{name: "drain, prefetch 256, with events to one listener", workload: "drain", n: tasks, flags: wide, ours: []string{"-events"}, raw: []string{}, figure: rate()},
		{name: "drain, prefetch 256: allocations per task", workload: "drain", n: tasks, flags: wide, figure: allocs(), wanted: 60},
		{name: "drain, prefetch 256: memory of the consumer", workload: "drain", n: tasks, flags: wide, figure: memory(), wanted: 40},
		{name: "end to end in one process, 256 concurrent Submits", workload: "e2e", n: tasks, flags: wide, raw: []string{}, figure: rate()},
		{name: "round trip, one after the other, default prefetch, p50", workload: "roundtrip", n: roundTrips, ours: []string{"-prefetch", "-1"}, raw: []string{}, figure: p50(), wanted: 1.6},
		{name: "round trip, one after the other, prefetch 1, p50", workload: "roundtrip", n: roundTrips, raw: []string{}, figure: p50()},
		{name: "idle consumer", workload: "idle", n: 2, figure: processor(), wanted: 0.5},
		{name: "10,000 tasks due at the same second: the last has started after", workload: "due", n: together, flags: wide, figure: latest(), wanted: 1000},
	}
}

func rabbitRows() []row {
	rows := []row{
		{name: "enqueue, SubmitAll", workload: "enqueue", n: tasks, raw: []string{}, figure: rate(), wanted: 0.85},
		{name: "drain, prefetch 256, raw acknowledges each", workload: "drain", n: tasks, flags: wide, raw: []string{}, figure: rate(), wanted: 0.95},
		{name: "drain, prefetch 256, raw acknowledges 64 at once", workload: "drain", n: tasks, flags: wide, raw: []string{"-multiple"}, figure: rate(), wanted: 0.55},
		{name: "drain, default prefetch, raw acknowledges each of 256", workload: "drain", n: tasks, flags: wide, ours: []string{"-prefetch", "-1"}, raw: []string{}, figure: rate(), wanted: 0.6},
	}
	rows = append(rows, common()...)
	for i, r := range rows {
		switch r.workload {
		case "enqueue":
			rows[i].wanted = 0.85
		case "due":
			rows[i].wanted = 0 // the task moves between levels, for which the issues promise no time
		}
	}
	return rows
}

func redisRows() []row {
	return append(append([]row{
		{name: "enqueue, SubmitAll, against pipelined XADD", workload: "enqueue", n: tasks, raw: []string{}, figure: rate(), wanted: 0.5},
		{name: "drain, prefetch 256, against XREADGROUP, XACK and XDEL of 256", workload: "drain", n: tasks, flags: wide, raw: []string{}, figure: rate(), wanted: 0.6},
	}, common()...), append(single(20), million()...)...)
}

func natsRows() []row {
	return append(append([]row{
		{name: "enqueue, SubmitAll, against PublishMsgAsync", workload: "enqueue", n: 4 * tasks, raw: []string{}, figure: rate(), wanted: 0.8},
		{name: "enqueue, SubmitAll, against one plain subject", workload: "enqueue", n: 4 * tasks, raw: []string{"-plain"}, figure: rate()},
		{name: "drain, prefetch 256, against a pull consumer", workload: "drain", n: tasks, flags: wide, raw: []string{}, figure: rate(), wanted: 0.7},
		{name: "drain, prefetch 256, against one plain subject and acks nobody waits for", workload: "drain", n: tasks, flags: wide, raw: []string{"-plain"}, figure: rate()},
	}, common()...), single(300)...)
}

// hworkerRows returns rows without targets: the issues promise no speed for a layout that exists
// for compatibility.
func hworkerRows() []row {
	return []row{
		{name: "enqueue, SubmitAll, against LPUSH of 500", workload: "enqueue", n: tasks, raw: []string{}, figure: rate()},
		{name: "drain, prefetch 256, against a script for 256 and HDEL", workload: "drain", n: tasks, flags: wide, raw: []string{}, figure: rate()},
		{name: "round trip, one after the other, default prefetch, p50", workload: "roundtrip", n: roundTrips, ours: []string{"-prefetch", "-1"}, raw: []string{}, figure: p50()},
	}
}

func postgresRows() []row { return sqlRows(0.7) }

func sqliteRows() []row { return sqlRows(0.6) }

// sqlRows returns the rows of a database. wanted is the target for the ratio to one bare
// connection.
func sqlRows(wanted float64) []row {
	return []row{
		{name: "enqueue, SubmitAll, against 1,000 rows in one transaction", workload: "enqueue", n: tasks, raw: []string{}, figure: rate(), wanted: wanted},
		{name: "enqueue, 256 concurrent Submits, against one connection", workload: "enqueue", n: tasks / 5, flags: wide, raw: []string{}, figure: rate()},
		{name: "drain, prefetch 512", workload: "drain", n: tasks, flags: []string{"-concurrency", "512"}, raw: []string{}, figure: rate(), wanted: wanted},
		{name: "end to end in one process, 256 concurrent Submits", workload: "e2e", n: tasks, flags: wide, figure: rate()},
		{name: "round trip, one after the other, default prefetch, p50", workload: "roundtrip", n: roundTrips, ours: []string{"-prefetch", "-1"}, figure: p50(), wanted: 5},
		{name: "idle consumer", workload: "idle", n: 2, figure: processor(), wanted: 0.5},
	}
}

// single returns rows about tasks that are each due at a different time.
func single(milliseconds float64) []row {
	return []row{
		{name: "a single due task starts after its time, p99", workload: "due", n: together, flags: wide, figure: p99(), wanted: milliseconds},
		{name: "the same, the latest of 200", workload: "due", n: together, flags: wide, figure: most()},
	}
}

// million returns rows about many delayed tasks.
func million() []row {
	return []row{
		of("a million delayed: rate of enqueuing due tasks, after against before", "", func(r report) float64 { return r.Delayed.After / r.Delayed.Before }, 0.6),
		of("a million delayed: rate of draining due tasks, after against before", "", func(r report) float64 { return r.Delayed.DrainLate / r.Delayed.Drain }, 0),
		of("a million delayed: rate of the last 100,000 against the first", "", func(r report) float64 { return r.Delayed.Final / r.Delayed.First }, 0.5),
		below("a million delayed: idle consumer", " % of a core", func(r report) float64 { return r.Delayed.Idle }, 0.5),
		below("a million delayed: memory of a consumer, after against before", "", func(r report) float64 { return r.Delayed.RSSAfter / r.Delayed.RSSBefore }, 1.25),
		below("a million delayed: the slowest command above 10 ms", " ms", func(r report) float64 { return r.Delayed.Slowest }, 0),
	}
}

func of(name, unit string, f func(report) float64, wanted float64) row {
	return row{name: name, workload: "delayed", n: waiting, once: true, figure: figure{of: f, unit: unit}, wanted: wanted}
}

func below(name, unit string, f func(report) float64, wanted float64) row {
	r := of(name, unit, f, wanted)
	r.figure.lower = true
	return r
}

func memoryRows() []row {
	return []row{
		{name: "end to end, SubmitAll", workload: "e2e", n: 10 * tasks, ours: []string{"-prefetch", "256"}, figure: rate(), wanted: 300_000},
		{name: "end to end: allocations per task", workload: "e2e", n: 10 * tasks, ours: []string{"-prefetch", "256"}, figure: allocs(), wanted: 30},
		{name: "end to end, 256 concurrent Submits", workload: "e2e", n: 10 * tasks, flags: wide, figure: rate()},
		{name: "10,000 tasks due at the same second: the last has started after", workload: "due", n: together, flags: wide, figure: latest(), wanted: 1000},
	}
}
