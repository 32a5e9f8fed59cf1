package sqljobs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstest"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// seldom returns queries that select a small part of a large table.
func seldom() map[string]jobstest.Query {
	running := []jobstore.State{jobstore.Running, jobstore.RunQueued}
	return map[string]jobstest.Query{
		"a state nobody is in":     {Page: jobstore.Page{States: []jobstore.State{jobstore.Waiting}, Limit: 500}},
		"who runs":                 {Page: jobstore.Page{States: running, Limit: 500}},
		"who runs, of a name":      {Page: jobstore.Page{States: running, Limit: 500}, Name: "name-1"},
		"the end of a queue by id": {Page: jobstore.Page{After: 29_000, Limit: 500}, Queue: "queue"},
	}
}

// crowd stores n jobs. Every thousandth job runs, and half of the jobs are in a queue.
func crowd(t testing.TB, dsn string, n int) {
	t.Helper()
	s := open(t, dsn)
	list := make([]*jobstore.Row, n)
	for i := range list {
		j := job(fmt.Sprintf("name-%d", i%2), 100, time.Now().Add(-time.Hour))
		if i%4 < 2 {
			j.Queue, j.Weight = "queue", 1000
		}
		if i%1000 < 2 {
			j.State = jobstore.Running
		}
		list[i] = j
	}
	save(t, s, list...)
}

func BenchmarkFindSeldom(b *testing.B) {
	eachBench(b, func(b *testing.B, dsn string) {
		crowd(b, dsn, 100_000)
		s := open(b, dsn)
		for what, q := range seldom() {
			b.Run(what, func(b *testing.B) {
				for b.Loop() {
					found(b, s, q)
				}
			})
		}
	})
}
