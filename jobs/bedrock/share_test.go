package bedrock

import (
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs"
)

// TestLargeQuery shows that a large Query request does not reserve the units of work that its pages
// wait for.
func TestLargeQuery(t *testing.T) {
	s := jobsServer(t, Config{})
	hostile := dial(t, s.addr)
	hostile.send("Query\nquery: select * from jobs\ntimeout: 86400000\npadding: " + strings.Repeat("x", 15<<19) + "\n\n")
	testwait.Until(t, "it was read", func() bool { return s.Stats().Requests == 1 })
	good := dial(t, s.addr)
	good.ask("Query\nquery: select * from jobs\ntimeout: 5000\n\n").wantStatus(t, ok)
	good.ask("CreateJobs\njobs: [{\"name\":\"foo\",\"data\":{\"text\":\""+strings.Repeat("x", 100<<10)+"\"}}]\n\n").wantStatus(t, ok)
	if got := hostile.next(); got.Status != ok {
		t.Error(got.Status)
	}
}

// TestNoMemoryForAnswers shows that a completed command is not refused for lack of memory, and that
// small answers need none.
func TestNoMemoryForAnswers(t *testing.T) {
	s := jobsServer(t, Config{})
	c := dial(t, s.addr)
	c.ask("CreateJob\nname: middle\ndata: {\"text\":\""+strings.Repeat("x", 11<<10)+"\"}\n\n").wantStatus(t, ok)
	for range 100 { // their answers leave buffers of 12 KiB, which are reused
		c.ask("QueryJob\njobID: 1\n\n").wantStatus(t, ok)
	}
	all := int(s.c.MaxMemory / 2)
	// the memory of the last answer is released after it was sent
	testwait.Until(t, "half of the memory is free", func() bool { return s.memory.answer(all) })
	defer s.memory.answer(-all)
	refused := 0
	for range 200 {
		if got := c.ask("CreateJob\nname: foo\n\n"); got.Status != ok {
			refused++
		}
	}
	if refused > 0 {
		t.Errorf("%d of 200 small answers were refused, and their jobs made", refused)
	}
	before := count(t, s)
	got := c.ask("CreateJobs\njobs: [" + strings.TrimSuffix(strings.Repeat(`{"name":"foo"},`, 5000), ",") + "]\n\n")
	if made := count(t, s) - before; got.Status != ok && made > 0 {
		t.Errorf("%q, and %d jobs were made", got.Status, made)
	}
}

func count(t *testing.T, s *serving) int {
	t.Helper()
	all, err := s.c.Service.List(t.Context(), jobs.Filter{Name: "foo"})
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
