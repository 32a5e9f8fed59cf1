package callback

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
)

// TestServiceInMemory gives answers to real jobs by HTTP and by message.
func TestServiceInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store, err := memjobs.New(memjobs.Config{})
		if err != nil {
			t.Fatal(err)
		}
		told := map[jobs.ReceiptKind]int{}
		s, err := jobs.New(jobs.Config{Store: store, Logger: quiet(), OnAnswer: func(_ jobs.Answer, r jobs.Receipt) { told[r.Kind]++ }})
		if err != nil {
			t.Fatal(err)
		}
		h, err := NewHandler(Config{Service: s, Open: true, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		b := listen(t, membroker.New(), ListenerConfig{})
		b.l.answer = s.AnswerAll
		b.start()

		ids := make([]jobs.ID, 4)
		for i := range ids {
			made, err := s.Create(ctx, jobs.Spec{Name: "print", Key: fmt.Sprint("k", i)})
			if err != nil {
				t.Fatal(err)
			}
			ids[i] = made.ID
		}
		if w := ask(h, "POST", "/print/k3", `{"n":3}`); w.Code != 202 { // before the job has begun
			t.Errorf("%d %s", w.Code, w.Body)
		}
		got, err := s.Get(ctx, jobs.Request{Selector: jobs.Selector{Pattern: "*"}, Max: len(ids), Lease: time.Minute})
		if err != nil || len(got) != len(ids) {
			t.Fatal(len(got), err)
		}
		for i := range got {
			if _, err := s.Await(ctx, jobs.Await{ID: got[i].ID, Token: got[i].Token}); err != nil {
				t.Fatal(err)
			}
		}
		for _, tt := range []struct {
			target, body string
			status       int
			said         string
		}{
			{"/print/k0", `{"n":1}`, 200, fmt.Sprintf(`{"status":"accepted","job":%d}`, ids[0])},
			{"/print/k0", `{"n":2}`, 409, fmt.Sprintf(`{"status":"duplicate","job":%d}`, ids[0])},
			{"/print/k3", `{"n":2}`, 409, fmt.Sprintf(`{"status":"duplicate","job":%d}`, ids[3])},
			{"/print/nobody", "", 202, `{"status":"early"}`},
			{"/other/k1", "", 202, `{"status":"early"}`},
		} {
			if w := ask(h, "POST", tt.target, tt.body); w.Code != tt.status || w.Body.String() != tt.said {
				t.Errorf("%s: %d %s", tt.target, w.Code, w.Body)
			}
		}
		b.send(answerText("k1"), `{"name":"print","key":"k2","error":"no paper"}`, answerText("k1"), answerText("k0"))
		synctest.Wait()
		if st := b.l.Stats(); st.Accepted != 2 || st.Duplicate != 2 || st.Unreadable != 0 {
			t.Errorf("%+v", st)
		}
		for i, want := range []string{`FINISHED {"n":1} `, `FINISHED 1 `, `RUNNING  no paper`, `FINISHED {"n":3} `} {
			j, err := s.Query(ctx, ids[i])
			if text := fmt.Sprintf("%s %s %s", j.State, j.Answer, j.Reason); err != nil || text != want {
				t.Errorf("%q, %v, want %q", text, err, want)
			}
		}
		if told[jobs.Duplicate] != 4 || told[jobs.Early] != 3 {
			t.Errorf("%v", told)
		}
		if err := store.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if w := ask(h, "POST", "/print/k2", "1"); w.Code != 503 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
}
