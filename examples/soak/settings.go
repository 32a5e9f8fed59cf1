package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// settings holds the configuration from the environment.
type settings struct {
	role        string
	memory      bool
	urls        string // of one cluster, separated by commas
	queue       string
	ledger      string
	id          string
	rate        float64
	taskTime    time.Duration
	concurrency int
	atMostOnce  bool
	results     bool
	seed        uint64

	count    int
	resume   bool
	prefetch int
	lease    time.Duration
	grace    time.Duration
	store    string // URL of the results; "": with the broker
	crashes  int
	absent   time.Duration
	insist   time.Duration
}

const (
	roleProducer = "producer"
	roleConsumer = "consumer"
)

// settingsFrom reads the environment. The error holds all problems.
func settingsFrom(getenv func(string) string) (*settings, error) {
	env := environment{get: getenv}
	s := &settings{
		role:        getenv("CHAOS_ROLE"),
		queue:       env.text("CHAOS_QUEUE", "soak"),
		ledger:      getenv("CHAOS_LEDGER"),
		rate:        env.number("CHAOS_RATE", 0),
		taskTime:    env.milliseconds("CHAOS_TASK_MS", 0),
		concurrency: int(env.number("CHAOS_CONCURRENCY", 4)),
		results:     env.flag("CHAOS_RESULTS"),
		seed:        uint64(env.number("CHAOS_SEED", 0)),
		count:       int(env.number("CHAOS_COUNT", 0)),
		resume:      env.flag("CHAOS_RESUME"),
		prefetch:    int(env.number("CHAOS_PREFETCH", 0)),
		lease:       env.milliseconds("CHAOS_LEASE_MS", 0),
		grace:       env.milliseconds("CHAOS_GRACE_MS", 30*time.Second),
		store:       getenv("CHAOS_RESULTS_URL"),
		crashes:     int(env.number("CHAOS_CRASHES", 0)),
		absent:      env.milliseconds("CHAOS_ABSENT_MS", 0),
		insist:      env.milliseconds("CHAOS_STORE_RETRY_MS", 0),
	}
	s.broker(&env)
	switch mode := env.text("CHAOS_MODE", "atleast"); mode {
	case "atleast":
	case "atmost":
		s.atMostOnce = true
	default:
		env.bad("CHAOS_MODE", mode, "atleast or atmost")
	}
	if s.ledger == "" {
		env.bad("CHAOS_LEDGER", "", "the name of a file")
	}
	if s.concurrency < 1 {
		env.bad("CHAOS_CONCURRENCY", strconv.Itoa(s.concurrency), "1 or more")
	}
	s.id = env.text("CHAOS_ID", env.text("CHAOS_ROLE", "soak"))
	env.errs = append(env.errs, task.CheckName(s.queue), task.CheckName(s.id+"-"))
	if err := errors.Join(env.errs...); err != nil {
		return nil, fmt.Errorf("soak:\n%w", err)
	}
	return s, nil
}

// schemes returns, for each value of CHAOS_BROKER, the schemes of its URLs.
func schemes() map[string][]string {
	return map[string][]string{
		"rabbit":   {"amqp"},
		"redis":    {"redis"},
		"nats":     {"nats:", "tls:"},
		"postgres": {"postgres"},
		"sqlite":   {"sqlite:"},
	}
}

// broker reads the variables that select the broker and the role. The URL alone would be enough: a
// name that does not match it is an error.
func (s *settings) broker(env *environment) {
	kind := env.get("CHAOS_BROKER")
	if kind == "none" {
		s.memory, s.role = true, "both"
		return
	}
	if s.urls = env.get("CHAOS_BROKER_URL"); s.urls == "" {
		env.bad("CHAOS_BROKER_URL", "", "one URL or more, separated by commas")
	}
	if kind != "" {
		begins, known := schemes()[kind]
		fits := func(begin string) bool { return strings.HasPrefix(s.urls, begin) }
		switch {
		case !known:
			env.bad("CHAOS_BROKER", kind, "rabbit, redis, nats, postgres, sqlite or none, or left out")
		case s.urls != "" && !slices.ContainsFunc(begins, fits):
			env.bad("CHAOS_BROKER", kind, "the broker of the URL, which begins otherwise; or left out")
		}
	}
	if s.role != roleProducer && s.role != roleConsumer {
		env.bad("CHAOS_ROLE", s.role, "producer or consumer")
	}
}

// environment reads variables and collects the errors in their values.
type environment struct {
	get  func(string) string
	errs []error
}

func (e *environment) bad(name, value, wanted string) {
	e.errs = append(e.errs, fmt.Errorf("%s is %q; it must be %s", name, value, wanted))
}

func (e *environment) text(name, otherwise string) string {
	if v := e.get(name); v != "" {
		return v
	}
	return otherwise
}

func (e *environment) number(name string, otherwise float64) float64 {
	v := e.get(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || n < 0 || n > 1<<53 {
		e.bad(name, v, "a number of 0 or more")
		return otherwise
	}
	return n
}

func (e *environment) milliseconds(name string, otherwise time.Duration) time.Duration {
	return time.Duration(e.number(name, float64(otherwise.Milliseconds()))) * time.Millisecond
}

func (e *environment) flag(name string) bool {
	switch v := e.get(name); v {
	case "", "0":
		return false
	case "1":
		return true
	default:
		e.bad(name, v, "1 or 0")
		return false
	}
}
