package jobstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// oddNames returns names that a store might misinterpret.
func oddNames() []string {
	return []string{
		"x", " ", " x ", "www-prod/SendEmail?a=1", `o'clock`, `"quoted"`, `back\slash`, "a;b--c", "%_*?[a-z]", "é€😀", "e\u0301", "a\tb\r\nc\x01", "NULL",
		"0", "1e3", "\u2028", strings.Repeat("x", jobs.MaxName), strings.Repeat("é", jobs.MaxName/2), "Case", "case", "\U0010FFFF",
	}
}

// fieldsOfQueues returns functions that each set one field of a job of a queue, or of a job that
// awaits an answer.
func fieldsOfQueues(at time.Time) []func(*jobs.Row) {
	return []func(*jobs.Row){
		func(j *jobs.Row) { j.Queue = "q" },
		func(j *jobs.Row) { j.Queue, j.Due = "q", at },
		func(j *jobs.Row) { j.Weight = 1 },
		func(j *jobs.Row) { j.Window = "06:00-22:00" },
		func(j *jobs.Row) { j.Timeout = time.Microsecond },
		func(j *jobs.Row) { j.Deadline = at },
		func(j *jobs.Row) { j.Attempt = 1 },
		func(j *jobs.Row) { j.UniqueKey = "0" },
		func(j *jobs.Row) { j.Key = "NULL" },
		func(j *jobs.Row) { j.Phase = jobs.Awaiting },
		func(j *jobs.Row) { j.Respond = true },
		func(j *jobs.Row) { j.Answer = []byte("null") },
		func(j *jobs.Row) { j.Expires = at },
	}
}

// saveCases returns the cases about Tx.Save, Tx.Delete and stored fields.
func saveCases() []testCase {
	micros := func(y int, m time.Month, d, us int) time.Time {
		return time.Date(y, m, d, 23, 59, 59, us*1000, time.UTC)
	}
	return []testCase{
		{
			// Promises: Q43.
			Area: "save", Name: "all fields",
			Explain: "A store returns all fields of a job unchanged, empty ones included, and the data byte for byte.",
			Run: func(w *world) {
				s := w.Open()
				full := jobs.Row{Job: jobs.Job{Name: "www-prod/SendEmail", State: jobs.RunQueued, Priority: -12, Data: []byte("{ \"b\":1, \"a\" : [ 1.0, 1e2 ], \"b\": 2,\n\"c\":\"\\u0000\\ud83d\\ude00é\" }"), Created: micros(2026, 1, 31, 999_999), Changed: micros(2026, 2, 1, 1), NextRun: micros(9999, 12, 31, 999_999), LastRun: micros(1969, 12, 31, 999_999), Repeat: "SCHEDULED, +1 DAY, START OF DAY", RetryAfter: "+5 MINUTES", Parent: 1<<53 - 1, SequenceKey: `k'"é`, Mock: true, Reason: "it said: \"no\"\n\t'é'", Queue: `q'"é`, Weight: jobs.MaxWeight, Window: "22:00-06:00 on mon,tue", Timeout: 365*24*time.Hour + time.Microsecond, Deadline: micros(9999, 12, 31, 999_999), Attempt: math.MaxInt32 + 1, UniqueKey: strings.Repeat("u", jobs.MaxKey), Key: "k\r\n'\"é\x01", Phase: jobs.Answered, Answer: []byte(" \"\\u0000 é\" "), Expires: micros(1969, 12, 31, 999_999)}, Scheduled: micros(0, 1, 1, 0), Due: micros(1970, 1, 1, 123_456), HasChildren: true, Run: math.MaxInt32 + 1, Token: 1<<53 - 1, Respond: true}
				bare := jobs.Row{Job: jobs.Job{Name: "x", State: jobs.Queued, Data: []byte(`{}`)}}
				list := []jobs.Row{full, bare}
				for _, state := range []jobs.State{jobs.Queued, jobs.Running, jobs.Paused, jobs.Waiting, jobs.Finished, jobs.Failed, jobs.Cancelled} {
					j := bare
					j.State = state
					list = append(list, j)
				}
				list = w.save(s, list...)
				// each by itself: a store may write fewer columns without them
				for _, edit := range fieldsOfQueues(full.Due) {
					j := bare
					edit(&j)
					list = append(list, w.save(s, j)...)
				}
				other := w.Open()
				for i, j := range list {
					w.wantSame(w.get(other, j.ID), j, "job %d by Get", i)
				}
				for i, j := range w.find(other, Query{}) {
					w.wantSame(j, list[i], "job %d by Find", i)
				}
				// And over existing jobs: the full one becomes bare, the bare one full.
				full.ID, bare.ID = list[1].ID, list[0].ID
				w.save(s, full, bare)
				w.wantSame(w.get(other, full.ID), full, "the bare one, made full")
				w.wantSame(w.get(other, bare.ID), bare, "the full one, made bare")
			},
		},
		{
			Area: "save", Name: "messages",
			Explain: "Save writes the Message of a new job. Save of a stored job does not change it, and reads leave it empty. Messages returns the messages of jobs that have one. An undone transaction and Delete leave none.",
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				message := func(text string) func(*jobs.Row) { return func(j *jobs.Row) { j.Message = text } }
				list := w.save(s, w.job(s, "a", message(`{"n": 1.50}`)), w.job(s, "a"), w.job(s, "a", message(`{"x":"\u0000"}`)))
				one := w.add(s, "b", message(`{"one":1}`))
				want := map[jobs.ID]string{list[0].ID: `{"n": 1.50}`, list[2].ID: `{"x":"\u0000"}`, one.ID: `{"one":1}`}
				check := func(what string) {
					w.Helper()
					got := map[jobs.ID]string{}
					w.view(other, func(ctx context.Context, tx jobstore.Tx) error {
						found, err := tx.Messages(ctx, list[0].ID, list[1].ID, list[2].ID, one.ID, 999)
						clear(got)
						for id, text := range found {
							got[id] = string(text)
						}
						return err
					})
					if diff := cmp.Diff(want, got); diff != "" {
						w.Errorf("%s (-want +got):\n%s", what, diff)
					}
				}
				check("the messages")
				if j := w.get(s, one.ID); j.Message != "" {
					w.Errorf("Get returns the message %s", j.Message)
				}
				for _, j := range w.find(s, Query{}) {
					if j.Message != "" {
						w.Errorf("Find returns the message %s", j.Message)
					}
				}
				w.edit(s, one.ID, message(`{"other":1}`))
				w.edit(s, list[0].ID, func(j *jobs.Row) { j.Name = "c" })
				check("after they were saved once more")
				undone := w.job(s, "c", message(`{}`))
				_ = s.Update(context.Background(), func(ctx context.Context, tx jobstore.Tx) error {
					j := undone
					return errors.Join(tx.Delete(ctx, one.ID), tx.Save(ctx, &j), errCase)
				})
				check("after what was undone")
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error { return tx.Delete(ctx, one.ID, list[0].ID) })
				delete(want, one.ID)
				delete(want, list[0].ID)
				check("after two were deleted")
				bad := w.job(s, "a", message(`[]`))
				err := s.Update(context.Background(), func(ctx context.Context, tx jobstore.Tx) error { return tx.Save(ctx, &bad) })
				w.WantIs(err, jobs.ErrBadJob, "Save of a message that is no object")
			},
		},
		{
			Area: "save", Name: "times",
			Explain: "Times and timeouts are stored in microseconds, times in UTC. Smaller fractions are dropped, so that no job is due late.",
			Run: func(w *world) {
				s := w.Open()
				zone := time.FixedZone("east", 5*3600+1800)
				for _, at := range []time.Time{
					time.Date(2026, 3, 29, 2, 30, 0, 123_456_789, zone), time.Date(1912, 6, 23, 0, 0, 0, 999, time.UTC),
					time.Date(2262, 4, 12, 0, 0, 0, 999_999_999, time.UTC), time.Now(),
				} {
					got := w.add(s, "a", func(j *jobs.Row) {
						j.Created, j.NextRun, j.Due, j.Deadline, j.Expires, j.Timeout = at, at, at, at, at, 1999*time.Nanosecond
					})
					if got = w.get(s, got.ID); got.Timeout != time.Microsecond {
						w.Errorf("a timeout of 1999 ns is kept as %v", got.Timeout)
					}
					for _, kept := range []time.Time{got.Created, got.NextRun, got.Due, got.Deadline, got.Expires} {
						if lost := at.Sub(kept); lost < 0 || lost >= time.Microsecond || kept.Location() != time.UTC {
							w.Errorf("%v is kept as %v", at, kept)
						}
					}
				}
			},
		},
		{
			Area: "save", Name: "ids",
			Explain: "Ids begin with 1, grow in the order of creation, in one call and in all processes, and are never used again, even after the last job was deleted.",
			Run: func(w *world) {
				s := w.Open()
				var list []jobs.Row
				for range 20 {
					list = append(list, w.job(s, "a"))
				}
				list = w.save(s, list...)
				last := jobs.ID(0)
				for _, j := range list {
					if j.ID <= last || last == 0 && j.ID != 1 || j.ID >= 1<<53 {
						w.Fatalf("the ids of one call are %v", ids(list))
					}
					last = j.ID
				}
				for i := range 5 {
					from := s
					if i%2 == 0 {
						from = w.Open()
					}
					j := w.add(from, "b")
					if j.ID <= last {
						w.Fatalf("the id after %d is %d", last, j.ID)
					}
					last = j.ID
					w.update(s, func(ctx context.Context, tx jobstore.Tx) error { return tx.Delete(ctx, j.ID) })
				}
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error {
					found, err := tx.All(ctx, jobstore.Page{})
					if err != nil {
						return err
					}
					return tx.Delete(ctx, ids(found)...)
				})
				if j := w.add(w.Open(), "c"); j.ID <= last {
					w.Errorf("the id after %d is %d, when all jobs were deleted", last, j.ID)
				}
			},
		},
		{
			Area: "save", Name: "checked before",
			Explain: "Jobs are checked before any of them is written: an invalid one changes nothing, and the error wraps ErrBadJob.",
			Run: func(w *world) {
				s := w.Open()
				kept := w.add(s, "kept")
				good := w.job(s, "good")
				ctx, cancel := w.Ctx()
				defer cancel()
				for what, spoil := range map[string]func(*jobs.Row){
					"no name":            func(j *jobs.Row) { j.Name = "" },
					"a long name":        func(j *jobs.Row) { j.Name = strings.Repeat("x", jobs.MaxName+1) },
					"a NUL":              func(j *jobs.Row) { j.Name = "a\x00b" },
					"no UTF-8":           func(j *jobs.Row) { j.Name = "a\xff" },
					"a key with a NUL":   func(j *jobs.Row) { j.SequenceKey = "\x00" },
					"another state":      func(j *jobs.Row) { j.State = "BUSY" },
					"a priority too far": func(j *jobs.Row) { j.Priority = jobs.MaxPriority + 1 },
					"no data":            func(j *jobs.Row) { j.Data = nil },
					"a list":             func(j *jobs.Row) { j.Data = []byte(`[]`) },
					"half of an object":  func(j *jobs.Row) { j.Data = []byte(`{"a":`) },
					"large data":         func(j *jobs.Row) { j.Data = largeData(jobs.MaxData + 1) },
					"half an answer":     func(j *jobs.Row) { j.Answer = []byte(`{`) },
					"a long key":         func(j *jobs.Row) { j.Key = strings.Repeat("x", jobs.MaxKey+1) },
					"a weight below 0":   func(j *jobs.Row) { j.Weight = -1 },
					"another phase":      func(j *jobs.Row) { j.Phase = "BUSY" },
					"the year 10000":     func(j *jobs.Row) { j.Due = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
				} {
					bad := good
					spoil(&bad)
					err := s.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
						first, changed, second := good, kept, bad
						changed.Name = "changed"
						return tx.Save(ctx, &first, &changed, &second)
					})
					w.WantIs(err, jobs.ErrBadJob, "Save of a job with %s", what)
				}
				found := w.find(s, Query{})
				if w.wantIDs(found, []jobs.Row{kept}, "what is there"); len(found) == 1 {
					w.wantSame(found[0], kept, "the job that was to be changed")
				}
			},
		},
		{
			Area: "save", Name: "odd names",
			Explain: "Names, keys and data are never executed: quotes, wildcards, control characters and 1 MiB of data or of an answer are stored and found.",
			Run: func(w *world) {
				s := w.Open()
				var list []jobs.Row
				for _, name := range oddNames() {
					list = append(list, w.job(s, name, func(j *jobs.Row) {
						j.SequenceKey, j.Repeat, j.Reason, j.Key, j.UniqueKey = name, name, name, name, name
					}))
				}
				list = w.save(s, list...)
				for i, name := range oddNames() {
					for what, q := range map[string]Query{
						"name": {Name: name}, "key": sequence(name), "answer's key": {Name: name, Key: name}, "unique key": uniqueKey(name, name), "unique name": unique(name),
						"list of due names": {Page: jobstore.Page{Limit: 3}, Due: &jobs.Due{Selector: jobs.Selector{Names: []string{name}}}},
					} {
						if found := w.find(s, q); len(found) != 1 {
							w.Errorf("%d jobs have the %s %q", len(found), what, name)
						} else {
							w.wantSame(found[0], list[i], "found by the %s %q", what, name)
						}
					}
				}
				big := w.add(s, "big", func(j *jobs.Row) { j.Data, j.Answer = largeData(jobs.MaxData), largeData(jobs.MaxData) })
				if got := w.get(w.Open(), big.ID); !bytes.Equal(got.Data, big.Data) || !bytes.Equal(got.Answer, big.Answer) {
					w.Errorf("%d bytes of data, and as many of an answer, came back as %d and %d others", len(big.Data), len(got.Data), len(got.Answer))
				}
			},
		},
		{
			Area: "save", Name: "nothing is shared",
			Explain: "A store keeps no reference to its arguments or results: changing their memory changes no job.",
			Run: func(w *world) {
				s := w.Open()
				data, answer := []byte(`{"n":1}`), []byte(`1`)
				template := w.job(s, "a", func(j *jobs.Row) { j.Data, j.Answer = data, answer })
				var id jobs.ID
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error {
					j := template
					copy(data, `{"n":1}`)
					copy(answer, `1`)
					if err := tx.Save(ctx, &j); err != nil {
						return err
					}
					id = j.ID
					copy(data, `{"n":2}`)
					copy(answer, `2`)
					got, err := tx.Get(ctx, j.ID)
					copy(got.Data, `{"n":3}`)
					copy(got.Answer, `3`)
					return err
				})
				for _, read := range []func() jobs.Row{
					func() jobs.Row { return w.get(s, id) },
					func() jobs.Row { return w.find(s, Query{})[0] },
					func() jobs.Row { return w.find(s, due("a", 1))[0] },
				} {
					got := read()
					if string(got.Data) != `{"n":1}` || string(got.Answer) != "1" {
						w.Errorf("the data are %s, the answer %s", got.Data, got.Answer)
					}
					copy(got.Data, `{"n":4}`)
					copy(got.Answer, `4`)
				}
				if got := w.get(s, id); string(got.Data) != `{"n":1}` || string(got.Answer) != "1" {
					w.Errorf("the data are %s, the answer %s", got.Data, got.Answer)
				}
			},
		},
		{
			Area: "save", Name: "many",
			Explain: "A call accepts any number of jobs, and a transaction covers all of them.",
			Run: func(w *world) {
				s := w.Open()
				list := make([]jobs.Row, 520)
				template := w.job(s, "many")
				for i := range list {
					list[i] = template
					list[i].Data = fmt.Appendf(nil, `{"i":%d}`, i)
				}
				list = w.save(s, list...)
				w.wantIDs(w.find(s, Query{Name: "many"}), list, "all of them")
				for i := range list {
					list[i].Run = int64(i)
				}
				w.save(s, list...)
				found := w.find(s, Query{IDs: ids(list)})
				w.wantIDs(found, list, "all of them by their ids")
				for i, j := range found {
					if j.Run != int64(i) || string(j.Data) != string(list[i].Data) {
						w.Fatalf("job %d has run %d and %s", i, j.Run, j.Data)
					}
				}
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error { return tx.Delete(ctx, ids(list[1:])...) })
				w.wantIDs(w.find(s, Query{}), list[:1], "what was not deleted")
			},
		},
		{
			Area: "save", Name: "delete",
			Explain: "Delete deletes jobs permanently. Missing ids are ignored.",
			Run: func(w *world) {
				s := w.Open()
				list := w.save(s, w.job(s, "a"), w.job(s, "b"), w.job(s, "c"))
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error {
					return tx.Delete(ctx, list[0].ID, 4711, list[2].ID, list[0].ID)
				})
				other := w.Open()
				w.gone(other, list[0].ID, "the first one")
				w.gone(other, list[2].ID, "the last one")
				w.wantIDs(w.find(other, Query{}), list[1:2], "what is there")
				w.wantIDs(w.find(other, due("*", 10)), list[1:2], "what is due")
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error { return tx.Delete(ctx, list[0].ID) })
			},
		},
	}
}

// largeData returns a JSON object of n bytes.
func largeData(n int) []byte {
	frame := `{"x":""}`
	return []byte(`{"x":"` + strings.Repeat("x", n-len(frame)) + `"}`)
}
