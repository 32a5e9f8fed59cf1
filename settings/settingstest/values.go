package settingstest

import (
	"bytes"
	"strings"
	"sync"
	"sync/atomic"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/settings"
)

// valueCases returns the cases of Get, Put, Delete and List by one process after the other.
func valueCases() []testCase {
	return []testCase{
		{
			Area: "values", Name: "put, get, delete",
			Explain: "A value is what was put last, for all processes; a deleted one is not found.",
			Run: func(w *world) {
				a, b := w.Open(), w.Open()
				if data, _ := w.get(a, "queue/mail/pause"); data != "" {
					w.Fatalf("a fresh key has the value %q", data)
				}
				first := w.put(a, "queue/mail/pause", "one", 0)
				if got := w.sees(b, "queue/mail/pause", "one"); got != first {
					w.Fatalf("Put returned revision %d and Get %d", first, got)
				}
				second := w.put(b, "queue/mail/pause", "two", first)
				w.sees(a, "queue/mail/pause", "two")
				w.remove(b, "queue/mail/pause", second)
				w.sees(a, "queue/mail/pause", "")
				if third := w.put(a, "queue/mail/pause", "three", 0); third <= second {
					w.Errorf("the revision %d of a new value does not follow %d", third, second)
				}
			},
		},
		{
			Area: "values", Name: "bytes and keys",
			Explain: "A value is any bytes up to MaxData, also none; keys differ in every byte and in their number of names.",
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				all := make([]byte, 256)
				for i := range all {
					all[i] = byte(i)
				}
				long := strings.Repeat("x", 128)
				values := map[string][]byte{
					"all": all, "none": {}, "large": bytes.Repeat([]byte{0xff}, settings.MaxData),
					"a.b": []byte("1"), "a-b": []byte("2"), "a_b": []byte("3"), "a..b.": []byte("4"), "A.b": []byte("5"), "a/b": []byte("6"), "a/b/c/d": []byte("7"),
					"queue/" + long + "/" + long: []byte("8"),
				}
				for key, data := range values {
					w.put(s, key, string(data), 0)
				}
				for key, data := range values {
					if w.sees(other, key, string(data)) == 0 {
						w.Errorf("%s has no value", key)
					}
				}
				if n := len(w.list(s, "")); n != len(values) {
					w.Errorf("%d values are listed, want %d", n, len(values))
				}
			},
		},
		{
			Area: "values", Name: "list",
			Explain: "List returns the values whose keys begin with a prefix, sorted by key.",
			Run: func(w *world) {
				a, b := w.Open(), w.Open()
				w.wantList(a, "")
				for _, key := range []string{"task/b/pause", "queue/b/pause", "queue/a.x/limit", "queue/a/limit"} {
					w.put(a, key, key, 0)
				}
				pair := func(key string) [2]string { return [2]string{key, key} }
				w.wantList(b, "queue/", pair("queue/a.x/limit"), pair("queue/a/limit"), pair("queue/b/pause"))
				w.wantList(b, "queue/a/", pair("queue/a/limit"))
				w.wantList(b, "group/")
				_, revision := w.get(a, "queue/a/limit")
				w.remove(a, "queue/a/limit", revision)
				w.wantList(b, "", pair("queue/a.x/limit"), pair("queue/b/pause"), pair("task/b/pause"))
			},
		},
		{
			Area: "values", Name: "entries of other programs", Needs: []need{needsForeign},
			Explain: "List leaves out what another program has written and this one cannot read; all values stay.",
			Run: func(w *world) {
				s := w.Open()
				w.put(s, "a", "one", 0)
				w.h.Foreign(w.TB)
				w.put(s, "b", "two", 0)
				for _, reader := range []settings.Store{s, w.Open()} {
					w.wantList(reader, "", [2]string{"a", "one"}, [2]string{"b", "two"})
				}
			},
		},
		{
			Area: "values", Name: "bad keys and values",
			Explain: "A key is a list of names and a value has a largest size; everything else is ErrBad.",
			Run: func(w *world) {
				s := w.Open()
				ctx, cancel := w.Ctx()
				defer cancel()
				for _, key := range []string{"", "/", "a/", "/a", "a//b", "a b", "a/b/c/d/e", "é", "a*", ".a", strings.Repeat("x", 129), "a\x00"} {
					_, err := s.Get(ctx, key)
					w.WantIs(err, settings.ErrBad, "Get %q", key)
					_, err = s.Put(ctx, key, nil, 0)
					w.WantIs(err, settings.ErrBad, "Put %q", key)
					w.WantIs(s.Delete(ctx, key, 1), settings.ErrBad, "Delete %q", key)
				}
				_, err := s.Put(ctx, "a", make([]byte, settings.MaxData+1), 0)
				w.WantIs(err, settings.ErrBad, "Put of a large value")
				w.wantList(s, "")
			},
		},
	}
}

// conflictCases returns the cases of changes of one value by several processes.
func conflictCases() []testCase {
	return []testCase{
		{
			Area: "conflicts", Name: "another revision",
			Explain: "Put and Delete change nothing if the present revision is another one, or there is no value.",
			Run: func(w *world) {
				s := w.Open()
				w.refuses(s, "a", 7)
				first := w.put(s, "a", "one", 0)
				w.refuses(s, "a", 0)
				w.refuses(s, "a", first+1)
				second := w.put(s, "a", "two", first)
				w.refuses(s, "a", first)
				w.sees(s, "a", "two")
				w.remove(s, "a", second)
				w.refuses(s, "a", second)
				ctx, cancel := w.Ctx()
				defer cancel()
				w.WantIs(s.Delete(ctx, "a", 0), settings.ErrConflict, "Delete of no value")
				w.put(s, "a", "three", 0)
				w.refuses(s, "a", first)
				w.refuses(s, "a", second)
				w.sees(s, "a", "three")
			},
		},
		{
			Area: "conflicts", Name: "at once", Needs: []need{needsExact},
			Explain: "Of several processes that change one revision, one succeeds.",
			Run: func(w *world) {
				stores := []settings.Store{w.Open(), w.Open(), w.Open()}
				revision := uint64(0)
				for range 10 {
					var won atomic.Int64
					var last atomic.Uint64
					var all sync.WaitGroup
					for i, s := range stores {
						all.Go(func() {
							ctx, cancel := w.Ctx()
							defer cancel()
							n, err := s.Put(ctx, "a", []byte{'a' + byte(i)}, revision)
							if err == nil {
								won.Add(1)
								last.Store(n)
								return
							}
							w.WantIs(err, settings.ErrConflict, "Put at once")
						})
					}
					all.Wait()
					if won.Load() != 1 {
						w.Fatalf("%d of %d changes of revision %d succeeded", won.Load(), len(stores), revision)
					}
					revision = last.Load()
				}
			},
		},
		{
			Area: "conflicts", Name: "updates at once",
			Explain: "Key.Update loses no change of this process, however many goroutines use it.",
			Run: func(w *world) {
				s := w.Open()
				const each, workers = 5, 4
				key := settings.GroupQueues("g")
				var all sync.WaitGroup
				for i := range workers {
					all.Go(func() {
						ctx, cancel := w.Ctx()
						defer cancel()
						for k := range each {
							name := string(rune('a'+i)) + string(rune('a'+k))
							if err := settings.ServeQueue(ctx, s, "g", name, settings.Served{}); err != nil {
								w.Errorf("ServeQueue: %v", err)
							}
						}
					})
				}
				all.Wait()
				ctx, cancel := w.Ctx()
				defer cancel()
				g, _, err := key.Get(ctx, s)
				w.Must(err, "Get")
				if len(g.Queues) != each*workers {
					w.Fatalf("%d of %d queues are stored", len(g.Queues), each*workers)
				}
			},
		},
		{
			Area: "conflicts", Name: "a model", Needs: []need{needsExact},
			Explain: "Random calls of two processes have the results of a map with revisions.",
			Run:     testModel,
		},
	}
}

// testModel makes random calls of two stores. It expects the results of a map with revisions.
func testModel(w *world) {
	stores := []settings.Store{w.Open(), w.Open()}
	run := 0
	rapid.Check(w.TB, func(t *rapid.T) {
		run++
		type value struct {
			data     string
			revision uint64
		}
		model, past := make(map[string]value), make(map[string][]uint64)
		prefix := "m" + strings.Repeat("x", run%100) + "/" + string(rune('a'+run/100%26)) + "/"
		ctx, cancel := w.Ctx()
		defer cancel()
		for range rapid.IntRange(1, 5).Draw(t, "calls") {
			s := rapid.SampledFrom(stores).Draw(t, "store")
			key := prefix + rapid.SampledFrom([]string{"p", "q"}).Draw(t, "key")
			revision := rapid.SampledFrom(append(past[key], 0, model[key].revision, model[key].revision)).Draw(t, "revision")
			fits := revision == model[key].revision
			switch rapid.SampledFrom([]string{"put", "put", "delete"}).Draw(t, "call") {
			case "put":
				data := rapid.SampledFrom([]string{"1", "2"}).Draw(t, "data")
				n, err := s.Put(ctx, key, []byte(data), revision)
				if fits != (err == nil) || err != nil && !isConflict(err) {
					t.Fatalf("Put over revision %d of %+v: %v", revision, model[key], err)
				}
				if fits {
					model[key], past[key] = value{data, n}, append(past[key], n)
				}
			default:
				err := s.Delete(ctx, key, revision)
				if fits && revision != 0 != (err == nil) && err != nil && !isConflict(err) || (err == nil) != (fits && revision != 0) {
					t.Fatalf("Delete of revision %d of %+v: %v", revision, model[key], err)
				}
				if err == nil {
					delete(model, key)
				}
			}
			other := rapid.SampledFrom(stores).Draw(t, "reader")
			values, err := other.List(ctx, prefix)
			if err != nil || len(values) != len(model) {
				t.Fatalf("%d values and %v, want %d", len(values), err, len(model))
			}
			for _, v := range values {
				if want := model[v.Key]; string(v.Data) != want.data || v.Revision != want.revision {
					t.Fatalf("%s is %s of revision %d, want %+v", v.Key, v.Data, v.Revision, want)
				}
			}
		}
	})
}
