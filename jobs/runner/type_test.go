package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/task"
)

// course describes the first attempt of a job. Later attempts succeed.
type course struct {
	Queue    string `json:"queue,omitempty"`
	Request  string `json:"request"`
	Answer   string `json:"answer"`
	Response string `json:"response"`
	Retry    string `json:"retry"`
	Attempt  int    `json:"attempt"`
	Seen     string `json:"seen,omitempty"`
}

func (f course) String() string {
	return strings.Join([]string{f.Queue, f.Request, f.Answer, f.Response, f.Retry}, "/")
}

var errMine = errors.New("mine")

// act performs the action that a course names for a function.
func act(what string) error {
	switch what {
	case "error":
		return errMine
	case "panic":
		panic("boom")
	case "gone":
		runtime.Goexit()
	}
	return nil
}

// reasonOf returns the stored reason of such an action.
func reasonOf(what string) string {
	return map[string]string{"error": "mine", "panic": "panic: boom", "gone": "ended its goroutine"}[what]
}

// end returns the expected end of a job: its state, a part of its reason, and its attempts. It was
// written from the requirements.
func (f course) end() (state jobs.State, reason string, attempts int) {
	failed := ""
	switch {
	case f.Request != "ok":
		failed = reasonOf(f.Request)
	case f.Answer == "never" || f.Answer == "another":
		failed = "no answer came in time"
	case f.Answer == "refusal":
		failed = "no thanks"
	case f.Response == "none":
	case f.Answer == "malformed":
		failed = "does not fit"
	case f.Response != "ok":
		failed = reasonOf(f.Response)
	}
	switch {
	case failed == "":
		return jobs.Finished, "", 1
	case f.Retry == "yes":
		return jobs.Finished, "", 2
	case f.Retry == "panic":
		return jobs.Failed, failed + "&" + reasonOf("panic"), 1
	}
	return jobs.Failed, failed, 1
}

func courses() []course {
	var all []course
	for _, named := range []string{"", "q"} {
		for _, request := range []string{"ok", "error", "panic", "gone"} {
			for _, answer := range []string{"ok", "refusal", "never", "another", "malformed"} {
				for _, response := range []string{"none", "ok", "error", "panic", "gone"} {
					for _, retry := range []string{"none", "no", "yes", "panic"} {
						all = append(all, course{Queue: named, Request: request, Answer: answer, Response: response, Retry: retry})
					}
				}
			}
		}
	}
	return all
}

// outside is the external service, which answers a second after each request.
type outside struct {
	s        *shop
	requests sync.Map // number of requests by key
}

func (o *outside) answer(name, key, how string) {
	time.Sleep(time.Second)
	var err error
	switch how {
	case "ok":
		_, err = o.s.Complete(context.Background(), name, key, map[string]string{"say": "hello"})
	case "refusal":
		_, err = o.s.Reject(context.Background(), name, key, errors.New("no thanks"))
	case "another":
		_, err = o.s.Complete(context.Background(), name, key+"?", nil)
	case "malformed":
		_, err = o.s.Complete(context.Background(), name, key, "not an object")
	}
	if err != nil {
		o.s.t.Errorf("%s: %v", key, err)
	}
}

// kind returns the type of the jobs of a course, whose functions follow the data.
func (o *outside) kind(name string, hasResponse, hasRetry bool) runner.Type[course, map[string]string] {
	t := runner.Type[course, map[string]string]{
		Name: name, Timeout: time.Minute,
		Key: func(f course) string { return fmt.Sprintf("%v %d", f, f.Attempt) },
		Request: func(_ ctx, f course) error {
			key := fmt.Sprintf("%v %d", f, f.Attempt)
			n, _ := o.requests.LoadOrStore(key, new(int))
			*n.(*int)++
			how := "ok"
			if f.Attempt == 0 {
				if err := act(f.Request); err != nil {
					return err
				}
				how = f.Answer
			}
			go o.answer(name, key, how)
			return nil
		},
	}
	if hasResponse {
		t.Response = func(_ ctx, f course, answer map[string]string) (course, error) {
			if f.Attempt == 0 {
				if err := act(f.Response); err != nil {
					return f, err
				}
			}
			f.Seen = answer["say"]
			return f, nil
		}
	}
	if hasRetry {
		t.Retry = func(_ ctx, f *runner.Failure[course]) bool {
			if f.Attempt != 1 || f.Err == nil || f.Job.Name != name || time.Until(f.At) != task.DefaultRetryDelay {
				o.s.t.Errorf("%+v", f)
			}
			switch f.Data.Retry {
			case "panic":
				panic("boom")
			case "no":
				f.Data.Seen = "lost" // this value is not stored
				return false
			}
			f.Data.Attempt++
			f.At = time.Now().Add(time.Hour)
			return true
		}
	}
	return t
}

// TestTypeCourses combines every result of the functions with every answer, with and without a
// queue.
// Promises: Q2, Q13.
func TestTypeCourses(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		o := &outside{s: s}
		kinds := map[string]runner.Type[course, map[string]string]{}
		for _, hasResponse := range []bool{false, true} {
			for _, hasRetry := range []bool{false, true} {
				name := fmt.Sprintf("kind %v %v", hasResponse, hasRetry)
				kinds[name] = o.kind(name, hasResponse, hasRetry)
			}
		}
		runners := map[string]*runner.Runner{
			"": s.runner(runner.Config{Workers: 8}), "q": s.runner(runner.Config{Workers: 8, Queue: &queue.Queue{Name: "q"}}),
		}
		for _, r := range runners {
			for _, kind := range kinds {
				if err := kind.Register(r); err != nil {
					t.Fatal(err)
				}
			}
		}
		ids := map[course]jobs.ID{}
		var stops []func()
		for _, named := range slices.Sorted(maps.Keys(runners)) {
			stops = append(stops, s.run(runners[named]))
		}
		for _, f := range courses() {
			name := fmt.Sprintf("kind %v %v", f.Response != "none", f.Retry != "none")
			id, err := kinds[name].Create(t.Context(), s.Service, f.Queue, f)
			if err != nil {
				t.Fatal(err)
			}
			ids[f] = id
		}
		time.Sleep(2 * time.Hour)
		for _, stop := range stops {
			stop()
		}
		requests := 0
		for f, id := range ids {
			j := s.job(id)
			state, reason, attempts := f.end()
			var got course
			if err := json.Unmarshal(j.Data, &got); err != nil {
				t.Fatal(err)
			}
			var missing []string
			for part := range strings.SplitSeq(reason, "&") {
				if !strings.Contains(j.Reason, part) || reason == "" && j.Reason != "" {
					missing = append(missing, part)
				}
			}
			seen := state == jobs.Finished && f.Response != "none"
			if j.State != state || len(missing) > 0 || got.Attempt != attempts-1 || (got.Seen == "hello") != seen || got.Seen == "lost" {
				t.Errorf("%v: %s %q %s after %d attempts; want %s %q, %d", f, j.State, j.Reason, j.Data, j.Attempt, state, reason, attempts)
			}
			if n, ok := o.requests.Load(fmt.Sprintf("%v 0", f)); !ok || *n.(*int) != 1 {
				t.Errorf("%v: its first request was not sent once", f)
			}
			if j.State == jobs.Finished && f.Response == "none" && j.Answer == nil {
				t.Errorf("%v: the answer is not kept", f)
			}
			if j.Phase == jobs.Awaiting || !j.Due.IsZero() || j.Expires.IsZero() {
				t.Errorf("%v: over, but %s, due %v, expires %v", f, j.Phase, j.Due, j.Expires)
			}
			requests += attempts
		}
		var sum runner.Stats
		for _, r := range runners {
			st := r.Stats()
			sum.Deferred += st.Deferred
			sum.Lost += st.Lost
			sum.Failed += st.Failed
		}
		if sum.Lost != 0 || sum.Failed == 0 || sum.Deferred == 0 {
			t.Errorf("%+v", sum)
		}
	})
}
