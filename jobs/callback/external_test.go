package callback_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/callback"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/all"
	"github.com/swarmiji/swarmiji/task"
)

// order is the data of a job in this test, and the body of its request.
type order struct {
	Number   int    `json:"number"`
	Fate     string `json:"fate"`
	Callback string `json:"callback"` // URL for the answer
	Pages    int    `json:"pages"`    // from the answer
}

func (o order) key() string { return fmt.Sprint("order-", o.Number) }

// printed is the answer.
type printed struct {
	Pages int `json:"pages"`
}

// tally counts answers by their result.
type tally struct {
	accepted, early, late, duplicate, bad, forbidden, unreadable int64
}

func (t *tally) add(o tally) {
	t.accepted += o.accepted
	t.early += o.early
	t.late += o.late
	t.duplicate += o.duplicate
	t.bad += o.bad
	t.forbidden += o.forbidden
	t.unreadable += o.unreadable
}

// fate describes the behaviour of the service for an order, and the expected result.
type fate struct {
	// before is called before the service receives the request of an attempt. asked is called when it
	// receives the request, before it responds, and after is called after the response.
	before, asked, after func(s *service, o order, attempt int)
	refuse               int // the attempt whose request the service refuses
	timeout              time.Duration
	state                jobs.State
	attempts             int64
	reason               string // a part of it
	tally                tally
}

const (
	patient = 5 * time.Minute // longer than the test
	brief   = 2 * time.Second
)

// fates returns all kinds of orders. By default an order is printed at the first attempt.
func fates() map[string]fate {
	onAttempt := func(n int, f func(*service, order)) func(*service, order, int) {
		return func(s *service, o order, attempt int) {
			if attempt == n {
				f(s, o)
			}
		}
	}
	always := func(f func(*service, order)) func(*service, order, int) {
		return func(s *service, o order, _ int) { f(s, o) }
	}
	byHTTP := func(s *service, o order) { s.want(o, s.post(o, o.Callback, right(o)), http.StatusOK) }
	byMessage := func(s *service, o order) { s.message(o, right(o), "") }
	return map[string]fate{
		"by HTTP":             {after: always(byHTTP), tally: tally{accepted: 1}},
		"by message":          {after: always(byMessage), tally: tally{accepted: 1}},
		"while it is asked":   {asked: always(byHTTP), tally: tally{accepted: 1}},
		"message while asked": {asked: always(byMessage), tally: tally{accepted: 1}},
		"twice by HTTP": {after: always(func(s *service, o order) {
			byHTTP(s, o)
			s.want(o, s.post(o, o.Callback, `{"pages":-5}`), http.StatusConflict)
		}), tally: tally{accepted: 1, duplicate: 1}},
		"twice by message": {after: always(func(s *service, o order) {
			byMessage(s, o)
			byMessage(s, o)
		}), tally: tally{accepted: 1, duplicate: 1}},
		"both ways at once": {after: always(func(s *service, o order) {
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() { s.post(o, o.Callback, right(o)) })
				all.Go(func() { byMessage(s, o) })
			}
			all.Wait()
		}), tally: tally{accepted: 1, duplicate: 5}},
		"early by HTTP": {before: always(func(s *service, o order) {
			s.want(o, s.post(o, o.Callback, right(o)), http.StatusAccepted)
		}), tally: tally{early: 1}},
		"early by message": {before: always(byMessage), tally: tally{early: 1}},
		"never":            {timeout: brief, state: jobs.Failed, reason: task.ErrAnswerTimeout.Error()},
		"late by HTTP": {timeout: brief, after: always(func(s *service, o order) {
			s.whenOver(o, func() { s.want(o, s.post(o, o.Callback, right(o)), http.StatusGone) })
		}), state: jobs.Failed, reason: task.ErrAnswerTimeout.Error(), tally: tally{late: 1}},
		"late by message": {timeout: brief, after: always(func(s *service, o order) {
			s.whenOver(o, func() {
				byMessage(s, o)
				s.heard(o, jobs.Late)
			})
		}), state: jobs.Failed, reason: task.ErrAnswerTimeout.Error(), tally: tally{late: 1}},
		"refused by HTTP": {after: always(func(s *service, o order) {
			s.want(o, s.post(o, o.Callback+"&error="+url.QueryEscape("no paper"), ""), http.StatusOK)
		}), state: jobs.Failed, reason: "no paper", tally: tally{accepted: 1}},
		"refused by message": {after: always(func(s *service, o order) { s.message(o, "", "no paper") }), state: jobs.Failed, reason: "no paper", tally: tally{accepted: 1}},
		"refused, then printed": {after: func(s *service, o order, attempt int) {
			if attempt == 1 {
				s.message(o, "", "try again")
				return
			}
			byHTTP(s, o)
		}, attempts: 2, tally: tally{accepted: 2}},
		"the wrong key": {timeout: brief, after: always(func(s *service, o order) {
			o.Number += 1_000_000
			s.message(o, right(o), "")
		}), state: jobs.Failed, reason: task.ErrAnswerTimeout.Error(), tally: tally{early: 1}},
		"no JSON": {after: always(func(s *service, o order) {
			s.want(o, s.post(o, o.Callback, `{"pages":`), http.StatusBadRequest)
			byHTTP(s, o)
		}), tally: tally{accepted: 1, bad: 1}},
		"the wrong JSON, then the right one": {after: func(s *service, o order, attempt int) {
			if attempt == 1 {
				s.want(o, s.post(o, o.Callback, `{"pages":"many"}`), http.StatusOK)
				return
			}
			byMessage(s, o)
		}, attempts: 2, tally: tally{accepted: 2}},
		"an answer that is refused here": {after: always(func(s *service, o order) {
			s.want(o, s.post(o, o.Callback, `{"pages":0}`), http.StatusOK)
		}), state: jobs.Failed, reason: "no pages", tally: tally{accepted: 1}},
		"an unreadable message": {after: always(func(s *service, o order) {
			s.publish([]byte("what?"))
			byMessage(s, o)
		}), tally: tally{accepted: 1, unreadable: 1}},
		"forged": {after: always(func(s *service, o order) {
			other := o
			other.Number++
			s.want(o, s.post(o, strings.Replace(o.Callback, o.key(), other.key(), 1), right(other)), http.StatusForbidden)
			byHTTP(s, o)
		}), tally: tally{accepted: 1, forbidden: 1}},
		"not taken at first": {refuse: 1, after: onAttempt(2, byHTTP), attempts: 2, tally: tally{accepted: 1}},
	}
}

// right returns the expected answer.
func right(o order) string { return fmt.Sprintf(`{"pages":%d}`, o.Number+1) }

// service is the external service. It knows only the requests, the queue of the answers, and the
// state that the test checks.
type service struct {
	t      *testing.T
	broker broker.Broker
	queue  string
	jobs   *jobs.Service
	client *http.Client
	fates  map[string]fate
	busy   sync.WaitGroup

	mu       sync.Mutex
	ids      map[int]jobs.ID
	attempts map[int]int
	sent     int                       // messages
	told     map[string][]jobs.Receipt // receipts from OnAnswer, by key
}

// ServeHTTP receives an order.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		s.t.Error(err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.attempts[o.Number]++
	attempt := s.attempts[o.Number]
	s.mu.Unlock()
	f := s.fates[o.Fate]
	if f.refuse == attempt {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if f.asked != nil {
		f.asked(s, o, attempt)
	}
	w.WriteHeader(http.StatusAccepted)
	if f.after != nil {
		s.busy.Go(func() { f.after(s, o, attempt) })
	}
}

// post sends an answer by HTTP and returns the status.
func (s *service) post(o order, to, body string) int {
	for {
		res, err := s.client.Post(to, "application/json", strings.NewReader(body))
		if err != nil {
			s.t.Errorf("%+v: %v", o, err)
			return 0
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusServiceUnavailable { // it must try again after a 503
			return res.StatusCode
		}
	}
}

func (s *service) want(o order, got, want int) {
	if got != want {
		s.t.Errorf("%s, order %d: status %d, want %d", o.Fate, o.Number, got, want)
	}
}

// message sends an answer by message.
func (s *service) message(o order, result, refusal string) {
	m := map[string]any{"name": typeName, "key": o.key()}
	if refusal != "" {
		m["error"] = refusal
	} else {
		m["result"] = json.RawMessage(result)
	}
	body, err := json.Marshal(m)
	if err != nil {
		s.t.Error(err)
	}
	s.publish(body)
}

func (s *service) publish(body []byte) {
	s.mu.Lock()
	s.sent++
	id := fmt.Sprint("answer-", s.sent)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.broker.Publish(ctx, s.queue, &broker.Message{ID: id, ContentType: "application/json", Body: body}); err != nil {
		s.t.Error(err)
	}
}

// whenOver calls do when a job is over, and checks that the job does not change.
func (s *service) whenOver(o order, do func()) {
	var before jobs.Job
	if !poll(func() bool {
		before = s.job(o)
		return before.State.Over()
	}) {
		s.t.Errorf("%s, order %d: it is never over", o.Fate, o.Number)
		return
	}
	do()
	if diff := cmp.Diff(before, s.job(o)); diff != "" {
		s.t.Errorf("%s: a job that is over has changed:\n%s", o.Fate, diff)
	}
}

// heard waits until OnAnswer has received an answer.
func (s *service) heard(o order, kind jobs.ReceiptKind) {
	if !poll(func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, r := range s.told[o.key()] {
			if r.Kind == kind {
				return true
			}
		}
		return false
	}) {
		s.t.Errorf("%s, order %d: nobody was told that it is %s", o.Fate, o.Number, kind)
	}
}

func (s *service) job(o order) jobs.Job {
	s.mu.Lock()
	id := s.ids[o.Number]
	s.mu.Unlock()
	if id == 0 {
		return jobs.Job{} // the job is being created
	}
	j, err := s.jobs.Query(context.Background(), id)
	if err != nil {
		s.t.Error(err)
	}
	return j
}

// onAnswer records the answers that the service of the jobs reports.
func (s *service) onAnswer(a jobs.Answer, r jobs.Receipt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told[a.Key] = append(s.told[a.Key], r)
}

// poll waits for up to a minute until ok returns true.
func poll(ok func() bool) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); !ok(); <-tick.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

const typeName = "print"

// TestExternalService answers a few hundred jobs in all ways: by HTTP and by message, at once,
// early, late, twice, never and with errors. Each job ends as its fate expects, and all counts are
// correct.
// Promises: Q1.
func TestExternalService(t *testing.T) {
	for _, road := range []struct {
		name, store, broker string
		n                   int
	}{
		{"SQLite and Redis", "sqlite", "redis", 150},
		{"PostgreSQL and RabbitMQ", "postgres", "rabbit", 150},
		{"memory and NATS", "mem", "nats", 100},
	} {
		t.Run(road.name, func(t *testing.T) {
			t.Parallel()
			ctx := testwait.Long(t)
			newWorld(t, ctx, road.store, road.broker).play(ctx, road.n)
		})
	}
}

// world contains all parts of the test.
type world struct {
	*service
	handler  *callback.Handler
	listener *callback.Listener
	signer   *callback.Signer
	answers  string // URL of the handler
	kind     runner.Type[order, printed]
	runner   *runner.Runner
}

func newWorld(t *testing.T, ctx context.Context, store, brokerKind string) *world {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	swarm, err := open.Open(ctx, brokerURL(t, brokerKind), open.Options{Namespace: testserver.Namespace(), Logger: quiet})
	must(t, err)
	atEnd(t, swarm.Close)
	st, err := openStore(t, ctx, store, quiet)
	must(t, err)
	atEnd(t, st.Close)
	w := &world{service: &service{
		t: t, broker: swarm.Broker, queue: "answers", fates: fates(), client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 16}},
		ids: map[int]jobs.ID{}, attempts: map[int]int{}, told: map[string][]jobs.Receipt{},
	}}
	t.Cleanup(w.client.CloseIdleConnections)
	must(t, broker.Declare(ctx, swarm.Broker, broker.Queue{Name: w.queue}))
	w.jobs, err = jobs.New(jobs.Config{Store: st, EarlyFor: 10 * time.Minute, OnAnswer: w.onAnswer, Logger: quiet})
	must(t, err)
	atEnd(t, w.jobs.Close)

	w.signer, err = callback.NewSigner(callback.SignerConfig{Secrets: [][]byte{[]byte("a secret that nobody guesses")}})
	must(t, err)
	w.handler, err = callback.NewHandler(callback.Config{Service: w.jobs, Prefix: "/answers", Signer: w.signer, Logger: quiet})
	must(t, err)
	here := httptest.NewServer(w.handler)
	t.Cleanup(here.Close)
	w.answers = here.URL + "/answers"
	w.listener, err = callback.NewListener(callback.ListenerConfig{Service: w.jobs, Broker: swarm.Broker, Queue: w.queue, Logger: quiet})
	must(t, err)
	there := httptest.NewServer(w.service)
	t.Cleanup(there.Close)
	t.Cleanup(w.busy.Wait)

	w.kind = runner.Type[order, printed]{
		Name:    typeName,
		Key:     order.key,
		Request: func(ctx context.Context, o order) error { return w.request(ctx, there.URL, o) },
		Response: func(_ context.Context, o order, a printed) (order, error) {
			if a.Pages <= 0 {
				return o, errors.New("no pages")
			}
			o.Pages = a.Pages
			return o, nil
		},
		Retry: func(_ context.Context, f *runner.Failure[order]) bool {
			f.At = time.Now()
			return int64(f.Attempt) < w.fates[f.Data.Fate].attempts
		},
		Timeout: patient,
	}
	w.runner, err = runner.New(runner.Config{Service: w.jobs, Workers: 16, Queue: &queue.Queue{Name: "shop", Limit: 100}, Logger: quiet})
	must(t, err)
	must(t, w.kind.Register(w.runner))
	return w
}

// request sends the request of a job.
func (w *world) request(ctx context.Context, to string, o order) error {
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := w.client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusAccepted {
		return fmt.Errorf("the service says %s", res.Status)
	}
	return nil
}

// play creates orders of every fate and random ones, and checks their results.
func (w *world) play(ctx context.Context, n int) {
	t := w.t
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 7))
	names := slices.Sorted(maps.Keys(w.fates))
	orders := make([]order, n)
	for i := range orders {
		o := order{Number: i, Fate: names[i%len(names)]}
		if i >= len(names) {
			o.Fate = names[random.IntN(len(names))]
		}
		var err error
		o.Callback, err = w.signer.URL(w.answers, typeName, o.key())
		must(t, err)
		orders[i] = o
	}
	run(t, w.listener.Run)
	for _, o := range orders {
		if f := w.fates[o.Fate]; f.before != nil {
			f.before(w.service, o, 0)
		}
	}
	for _, o := range orders {
		if w.fates[o.Fate].before != nil {
			w.heard(o, jobs.Early)
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	run(t, w.runner.Run)
	for _, o := range orders {
		id, err := w.kind.Create(ctx, w.jobs, "shop", o, func(spec *jobs.Spec) {
			if d := w.fates[o.Fate].timeout; d != 0 {
				spec.Timeout = task.Set(d)
			}
		})
		must(t, err)
		w.mu.Lock()
		w.ids[o.Number] = id
		w.mu.Unlock()
	}
	var left error
	if !poll(func() bool {
		left = w.over(ctx, n)
		return left == nil
	}) {
		t.Fatal("not all jobs are over:", left)
	}
	w.busy.Wait()
	var total tally
	for _, o := range orders {
		w.compare(o)
		total.add(w.fates[o.Fate].tally)
	}
	// Messages that were sent twice may be read after the end of their job.
	testwait.UntilNil(t, "all answers are counted", func() error {
		h, l := w.handler.Stats(), w.listener.Stats()
		got := tally{
			accepted: h.Accepted + l.Accepted, early: h.Early + l.Early, late: h.Late + l.Late, duplicate: h.Duplicate + l.Duplicate,
			bad: h.Bad, forbidden: h.Forbidden, unreadable: l.Unreadable,
		}
		if got != total {
			return fmt.Errorf("%+v, want %+v", got, total)
		}
		return nil
	})
	told := map[jobs.ReceiptKind]int64{}
	for _, rs := range w.told {
		for _, r := range rs {
			told[r.Kind]++
		}
	}
	if diff := cmp.Diff(map[jobs.ReceiptKind]int64{jobs.Early: total.early, jobs.Late: total.late, jobs.Duplicate: total.duplicate}, told); diff != "" {
		t.Errorf("what was told of answers:\n%s", diff)
	}
	if l := w.listener.Stats(); l.Received != int64(w.sent) || l.Refused+l.Dropped+l.PutBack+l.Failed != 0 {
		t.Errorf("%d messages, and %+v", w.sent, l)
	}
}

// over returns an error unless all jobs are over.
func (w *world) over(ctx context.Context, n int) error {
	over, err := w.jobs.List(ctx, jobs.Filter{Queue: "shop", States: []jobs.State{jobs.Finished, jobs.Failed, jobs.Cancelled}})
	if err != nil {
		return err
	}
	if len(over) != n {
		return fmt.Errorf("%d of %d are", len(over), n)
	}
	return nil
}

// compare compares a job with the fate of its order.
func (w *world) compare(o order) {
	f, j := w.fates[o.Fate], w.job(o)
	type end struct {
		State    jobs.State
		Attempts int64
		Pages    int
	}
	want := end{State: jobs.Finished, Attempts: max(f.attempts, 1), Pages: o.Number + 1}
	if f.state != "" {
		want.State, want.Pages = f.state, 0
	}
	var data order
	if err := json.Unmarshal(j.Data, &data); err != nil {
		w.t.Error(err)
	}
	got := end{State: j.State, Attempts: j.Attempt, Pages: data.Pages}
	if diff := cmp.Diff(want, got); diff != "" || !strings.Contains(j.Reason, f.reason) || (f.reason == "") != (j.Reason == "") {
		w.t.Errorf("%s, order %d: %s; reason %q, want %q", o.Fate, o.Number, diff, j.Reason, f.reason)
	}
	w.mu.Lock()
	asked := w.attempts[o.Number]
	w.mu.Unlock()
	if int64(asked) != want.Attempts {
		w.t.Errorf("%s, order %d: %d requests, want %d", o.Fate, o.Number, asked, want.Attempts)
	}
}

// run calls f in a goroutine until the test ends.
func run(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("it does not end")
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func atEnd(t *testing.T, closing func(context.Context) error) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := closing(ctx); err != nil {
			t.Error(err)
		}
	})
}

func brokerURL(t *testing.T, kind string) string {
	t.Helper()
	switch kind {
	case "redis":
		return testserver.RequireRedis(t).URL()
	case "rabbit":
		return testserver.RequireRabbit(t).URL()
	}
	return testserver.RequireNATS(t).URL()
}

func openStore(t *testing.T, ctx context.Context, kind string, quiet *slog.Logger) (jobs.Store, error) {
	if kind == "mem" {
		return memjobs.New(memjobs.Config{})
	}
	url := storeURL(t, ctx, kind)
	return sqljobs.New(sqljobs.Config{DB: sqltest.Open(t, url)})
}

func storeURL(t *testing.T, ctx context.Context, kind string) string {
	t.Helper()
	if kind == "sqlite" {
		u := url.URL{Scheme: "sqlite", Path: filepath.Join(t.TempDir(), "jobs.db")}
		return u.String()
	}
	p, schema := testserver.RequirePostgres(t), testserver.Namespace()
	must(t, p.Exec(ctx, "postgres", "CREATE SCHEMA "+schema))
	return p.URL() + "&schema=" + schema
}
