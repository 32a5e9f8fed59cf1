package jobs_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
)

// object returns a JSON object of n bytes.
func object(n int) []byte {
	return fmt.Appendf(nil, `{"x":"%s"}`, strings.Repeat("y", n-8))
}

func TestBadSpecs(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		for _, c := range []struct {
			field string
			spec  jobs.Spec
		}{
			{"name", jobs.Spec{}},
			{"name", jobs.Spec{Name: strings.Repeat("x", 256)}},
			{"name", jobs.Spec{Name: "a\x00b"}},
			{"name", jobs.Spec{Name: "\xff"}},
			{"sequenceKey", jobs.Spec{Name: "a", SequenceKey: strings.Repeat("x", 256)}},
			{"sequenceKey", jobs.Spec{Name: "a", SequenceKey: "\x00"}},
			{"data", jobs.Spec{Name: "a", Data: []byte("")}},
			{"data", jobs.Spec{Name: "a", Data: []byte("[]")}},
			{"data", jobs.Spec{Name: "a", Data: []byte("null")}},
			{"data", jobs.Spec{Name: "a", Data: []byte(`{"x":1}{}`)}},
			{"data", jobs.Spec{Name: "a", Data: []byte(`{"x":"` + "\xff" + `"}`)}},
			{"data", jobs.Spec{Name: "a", Data: []byte("{\"x\":\"\x00\"}")}},
			{"data", jobs.Spec{Name: "a", Data: []byte(strings.Repeat(`{"x":`, 100_000) + "1" + strings.Repeat("}", 100_000))}},
			{"data", jobs.Spec{Name: "a", Data: object(jobs.MaxData + 1)}},
			{"repeat", jobs.Spec{Name: "a", Repeat: "NEVER"}},
			{"repeat", jobs.Spec{Name: "a", Repeat: "SCHEDULED"}},
			{"repeat", jobs.Spec{Name: "a", Repeat: "SCHEDULED, +1 HOUR\x00"}},
			{"repeat", jobs.Spec{Name: "a", Repeat: "NEVER", Mock: true}},
			{"firstRun", jobs.Spec{Name: "a", FirstRun: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}},
			{"firstRun", jobs.Spec{Name: "a", FirstRun: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)}},
			{"jobPriority", jobs.Spec{Name: "a", Priority: task.Set(jobs.MaxPriority + 1)}},
			{"parentJobID", jobs.Spec{Name: "a", Parent: -1}},
		} {
			_, err := w.Create(w.Context(), c.spec)
			w.bad(err, c.field)
		}
		for _, name := range []string{strings.Repeat("x", 255), "äöü/*?[", " ", "\n", "'; DROP TABLE jobs"} {
			id := w.create(jobs.Spec{Name: name, SequenceKey: name})
			if got := w.job(id); got.Name != name || got.SequenceKey != name {
				w.Fatalf("%q became %q", name, got.Name)
			}
		}
		w.create(jobs.Spec{Name: "a", Data: object(jobs.MaxData)})
		big := w.create(jobs.Spec{Name: "big", Data: object(jobs.MaxData), RetryAfter: "+1 HOUR", Repeat: "SCHEDULED, +1 DAY"})
		w.get("big")
		w.bad(w.Update(w.Context(), jobs.Update{ID: big, Data: object(jobs.MaxData + 1)}), "data")
		w.bad(w.Finish(w.Context(), jobs.Finish{ID: big, Data: object(jobs.MaxData + 1)}), "data")
		w.data(w.create(jobs.Spec{Name: "a", Data: []byte("\n\t{\"big\": 12345678901234567890.000,\r\n\"dup\":1,\"dup\":2 } \r\n")}), "{\"big\": 12345678901234567890.000,\r\n\"dup\":1,\"dup\":2 }")
	})
}

// TestFirstRunIsNeverEarly shows that FirstRun is rounded up.
// Promises: Q9.
func TestFirstRunIsNeverEarly(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		zone := time.FixedZone("", 3600)
		id := w.create(jobs.Spec{Name: "a", FirstRun: time.Date(2000, 1, 1, 2, 0, 0, 1, zone)})
		w.next(id, "2000-01-01T01:00:00.000001Z")
		time.Sleep(time.Hour)
		w.none("a")
		time.Sleep(time.Microsecond)
		w.get("a")
	})
}

// TestCreateAll shows that CreateAll creates all jobs or none.
// Promises: B2.
func TestCreateAll(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		ctx := w.Context()
		if all, err := w.CreateAll(ctx, nil); err != nil || len(all) > 0 {
			w.Fatal(all, err)
		}
		_, err := w.CreateAll(ctx, []jobs.Spec{{Name: "a"}, {Name: "b", Repeat: "?"}})
		w.bad(err, "repeat")
		if !strings.Contains(err.Error(), "job 1 ") {
			w.Fatal(err)
		}
		_, err = w.CreateAll(ctx, []jobs.Spec{{Name: "a"}, {Name: "b", Parent: 1}})
		w.is(err, jobs.ErrParentNotFound)
		if all, err := w.List(ctx, jobs.Filter{}); err != nil || len(all) > 0 {
			w.Fatalf("%v, %v", all, err)
		}
		p := w.create(jobs.Spec{Name: "p"})
		w.get("p")
		old := w.create(jobs.Spec{Name: "old"})
		all, err := w.CreateAll(ctx, []jobs.Spec{
			{Name: "a"},
			{Name: "s", SequenceKey: "k"},
			{Name: "s", SequenceKey: "k"},
			{Name: "u", Unique: true},
			{Name: "u", Unique: true, Data: []byte(`{"n":2}`)},
			{Name: "old", Unique: true},
			{Name: "c", Parent: p},
			{Name: "c", Parent: p},
			{Name: "z", Priority: task.Set(1)},
		})
		w.ok(err)
		first := all[0].ID
		want := []jobs.Created{
			{ID: first},
			{ID: first + 1},
			{ID: first + 2},
			{ID: first + 3},
			{ID: first + 3, Existed: true},
			{ID: old, Existed: true},
			{ID: first + 4},
			{ID: first + 5},
			{ID: first + 6},
		}
		if diff := cmp.Diff(want, all); diff != "" {
			w.Fatal(diff)
		}
		w.state(jobs.Queued, first+1)
		w.state(jobs.Waiting, first+2)
		w.data(first+3, `{"n":2}`)
		w.state(jobs.Paused, first+4, first+5)
		if s := w.Stats(); s.Created != 9 || s.Existed != 2 {
			w.Fatalf("%+v", s)
		}
	})
}

// TestUnique shows how a unique Spec changes the existing job.
// Promises: B3.
func TestUnique(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		ctx := w.Context()
		id := w.create(jobs.Spec{Name: "u", Data: []byte(`{"a": 1.0, "b":{"c":[1],"d":"é"}}`), Repeat: "DAILY", Unique: true})
		w.create(jobs.Spec{Name: "u"}) // a later job that is not unique
		again := func(spec jobs.Spec, data string) jobs.Row {
			w.Helper()
			spec.Name, spec.Unique = "u", true
			c, err := w.Create(ctx, spec)
			w.ok(err)
			if c.ID != id || !c.Existed {
				w.Fatalf("%+v", c)
			}
			w.data(id, data)
			return w.job(id)
		}
		// Equal data: nothing changes, whatever the other fields are.
		for _, equal := range []string{`{"a": 1.0, "b":{"c":[1],"d":"é"}}`, `{"b":{"d":"\u00e9","c":[1e0]},"a":10E-1}`} {
			j := again(jobs.Spec{Data: []byte(equal), Priority: task.Set(5), Repeat: "HOURLY"}, `{"a": 1.0, "b":{"c":[1],"d":"é"}}`)
			if j.Repeat != "DAILY" || j.Priority != jobs.DefaultPriority {
				w.Fatalf("%+v", j)
			}
		}
		j := again(jobs.Spec{Data: []byte(`{"a":2}`), Keep: true, Priority: task.Set(5)}, `{"a": 1.0, "b":{"c":[1],"d":"é"}}`)
		if j.Repeat != "DAILY" || j.Priority != jobs.DefaultPriority {
			w.Fatalf("%+v", j)
		}
		// Other data are merged (RFC 7386).
		next := j.NextRun
		j = again(jobs.Spec{Data: []byte(`{"b":{"d":null,"e":12345678901234567890.50},"f":{"g":null,"h":"<&>"}}`), Priority: task.Set(5), Repeat: "HOURLY"},
			`{"a":1.0,"b":{"c":[1],"e":12345678901234567890.50},"f":{"h":"<&>"}}`)
		if j.Repeat != "HOURLY" || j.Priority != 5 || !j.NextRun.Equal(next) {
			w.Fatalf("%+v", j)
		}
		j = again(jobs.Spec{Data: []byte(`{"a":null,"b":[2],"f":null}`)}, `{"b":[2]}`)
		if j.Repeat != "" || j.Priority != 5 {
			w.Fatalf("%+v", j)
		}
		again(jobs.Spec{}, `{"b":[2]}`) // nothing to merge
		_, err := w.Create(ctx, jobs.Spec{Name: "u", Unique: true, Data: object(jobs.MaxData)})
		w.bad(err, "data")
		w.data(id, `{"b":[2]}`)

		// The job may be in any state.
		w.get("u")
		again(jobs.Spec{Data: []byte(`{"b":3}`)}, `{"b":3}`)
		w.state(jobs.Running, id)
		w.ok(w.Fail(ctx, jobs.Fail{ID: id}))
		again(jobs.Spec{Data: []byte(`{"b":4}`)}, `{"b":4}`)
		w.state(jobs.Failed, id)

		// Jobs with Mock are separate.
		for i := range 3 {
			c, err := w.Create(ctx, jobs.Spec{Name: "u", Unique: true, Mock: true})
			w.ok(err)
			if c.ID == id || c.Existed != (i > 0) {
				w.Fatalf("%+v", c)
			}
		}
	})
}

func TestUniqueChildren(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		ctx := w.Context()
		p := w.create(jobs.Spec{Name: "p"})
		q := w.create(jobs.Spec{Name: "p"})
		w.get("p")
		w.get("p")
		id := w.create(jobs.Spec{Name: "c", Parent: p, Unique: true})
		if got := w.create(jobs.Spec{Name: "c", Parent: p, Unique: true, Data: []byte(`{"x":1}`)}); got != id {
			w.Fatalf("job %d, not %d", got, id)
		}
		w.state(jobs.Paused, id)
		for _, other := range []jobs.ID{0, q, 77} {
			_, err := w.Create(ctx, jobs.Spec{Name: "c", Parent: other, Unique: true})
			w.is(err, jobs.ErrOtherParent)
		}
		w.create(jobs.Spec{Name: "free"})
		_, err := w.Create(ctx, jobs.Spec{Name: "free", Parent: p, Unique: true})
		w.is(err, jobs.ErrOtherParent)
		if !errors.Is(err, jobs.ErrState) {
			w.Fatal(err)
		}
		if w.job(q).HasChildren {
			w.Fatal("the other parent has children")
		}
		// A unique child and its parent, which is unique and updated, in the same call.
		if all, err := w.CreateAll(ctx, []jobs.Spec{{Name: "p", Unique: true, Data: []byte(`{"p":1}`)}, {Name: "c2", Parent: p, Unique: true}}); err != nil || all[0].ID != p {
			w.Fatalf("%v, %v", all, err)
		}
		w.data(p, `{"p":1}`)
	})
}

// TestUniqueWithBooks shows that the count of claims is not part of the compared data and stays.
func TestUniqueWithBooks(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		spec := jobs.Spec{Name: "u", Unique: true, RetryAfter: "+1 HOUR", Data: []byte(`{"x":1}`)}
		id := w.create(spec)
		w.get("u")
		changed := w.job(id).Changed
		time.Sleep(time.Second)
		w.create(spec)
		if !w.job(id).Changed.Equal(changed) {
			w.Fatal("changed")
		}
		spec.Data = []byte(`{"y":2,"retryAfterCount":null}`)
		w.create(spec)
		w.data(id, `{"x":1,"y":2}`)
		w.finish(id)
		w.state("", id)
		if !bytes.Equal(spec.Data, []byte(`{"y":2,"retryAfterCount":null}`)) {
			w.Fatal("the caller's data were changed")
		}
	})
}
