package revoke

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/task"
)

// TestSetAgainstModel checks that exact answers of the set are right, that it misses no valid id,
// and that it never stores more than max ids.
func TestSetAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := set{max: rapid.IntRange(1, 8).Draw(t, "max")}
		live := make(map[task.ID]int64) // end times of all ids that were added
		now := int64(1)
		id := rapid.Map(rapid.IntRange(0, 30), func(i int) task.ID { return task.ID(fmt.Sprint("id-", i)) })
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				id, ends := id.Draw(t, "id"), now+rapid.Int64Range(-2, 20).Draw(t, "for")
				s.add(id, ends, now)
				live[id] = max(live[id], ends)
			},
			"later": func(t *rapid.T) { now += rapid.Int64Range(0, 10).Draw(t, "by") },
			"": func(t *rapid.T) {
				if len(s.ids) > s.max || len(s.order) != len(s.ids) {
					t.Fatalf("%d ids in an order of %d, at most %d", len(s.ids), len(s.order), s.max)
				}
				for i := range 31 {
					id := task.ID(fmt.Sprint("id-", i))
					found, lives := s.find(id, now), live[id] > now
					if lives && found == no || !lives && found == yes {
						t.Fatalf("%s lives: %v; the set says %v", id, lives, found)
					}
				}
			},
		})
	})
}

// TestMillionIDs shows that a million revocations need a limited amount of memory and that a
// lookup allocates nothing. The filters rarely report an id that was not revoked.
// Promises: S69.
func TestMillionIDs(t *testing.T) {
	const n, limit = 1_000_000, 32 << 20
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	id := func(i int) task.ID { return task.ID("0190a1b2-c3d4-7e5f-8a9b-" + strconv.Itoa(1e11+i)) }
	before := heap()
	s := &set{max: DefaultMax}
	for i := range n {
		s.add(id(i), 1<<40, 1)
	}
	if used := int64(heap()) - int64(before); used > limit {
		t.Errorf("%d revocations take %d bytes, at most %d", n, used, limit)
	}
	if len(s.ids) != DefaultMax || cap(s.order) > 4*DefaultMax {
		t.Errorf("%d ids are known for certain, in an order with room for %d", len(s.ids), cap(s.order))
	}
	counts := make(map[finding]int)
	const looks = n / 10
	for i := range looks {
		counts[s.find(id(10*i), 2)]++
	}
	if counts[yes] != DefaultMax/10 || counts[no] != 0 {
		t.Errorf("of %d revoked ids %d are known for certain and %d missed", looks, counts[yes], counts[no])
	}
	claimed := 0
	for i := range looks {
		if s.find(id(n+i), 2) != no {
			claimed++
		}
	}
	if claimed > looks/1000 {
		t.Errorf("the filters claim %d of %d ids that were not revoked", claimed, looks)
	}
	if allocs := testing.AllocsPerRun(100, func() { s.find("0190a1b2", 2) }); allocs != 0 {
		t.Errorf("a look-up allocates %v times", allocs)
	}
	runtime.KeepAlive(s)
}

// TestFiltersGo shows that a filter is freed when all its ids are over.
func TestFiltersGo(t *testing.T) {
	s := set{max: 1}
	for i := range int64(3) {
		s.add(task.ID(fmt.Sprint("a", i)), 100, 1)
	}
	if s.find("a0", 50) != maybe || s.find("a0", 100) != no {
		t.Fatal("an id that gave way lives as long as it should not")
	}
	s.add("b0", 1000, 200)
	s.add("b1", 1000, 200)
	s.add("b2", 1000, 200)
	if s.find("b0", 300) != maybe || s.find("a0", 300) != no || s.find("a1", 300) != no || s.older.ends != 1000 || s.younger.ends != 1000 {
		t.Fatal("after its time the first filter is still there")
	}
}

// TestRules shows that a selector must match in all parts, that a later selector extends an equal
// earlier one, and that their number is limited.
func TestRules(t *testing.T) {
	r := rules{}
	e := &task.Envelope{ID: "1", Name: "mail", Headers: map[string]string{"tenant": "blue"}}
	for _, c := range []struct {
		s    Selector
		want bool
	}{
		{Selector{Header: "tenant", Value: "red"}, false},
		{Selector{Header: "other", Value: "blue"}, false},
		{Selector{Name: "mail", Queue: "q2"}, false},
		{Selector{Name: "mail", Queue: "q", Header: "tenant", Value: "blue"}, true},
		{Selector{Queue: "q"}, true},
		{Selector{Name: "mail"}, true},
	} {
		r = rules{}
		r.add(c.s, 100, 1)
		if got := r.match("q", e, 50); got != c.want || c.s.Match("q", e) != c.want {
			t.Errorf("%+v chooses the task: %v, %v; want %v", c.s, got, c.s.Match("q", e), c.want)
		}
		if r.match("q", e, 100) {
			t.Errorf("%+v chooses after its end", c.s)
		}
	}
	r = rules{}
	lost := 0
	for i := range MaxSelectors + 10 {
		if r.add(Selector{Header: "h", Value: fmt.Sprint(i)}, int64(1000+i), 1) {
			lost++
		}
	}
	if lost != 10 || len(r.rules) != MaxSelectors || len(r.shapes) != 1 {
		t.Errorf("%d selectors of %d shapes, %d lost", len(r.rules), len(r.shapes), lost)
	}
}
