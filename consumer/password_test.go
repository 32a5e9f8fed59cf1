package consumer_test

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
)

// serverURLs holds the servers of the tests of passwords and addresses.
var serverURLs = map[string]func(t *testing.T) string{
	"rabbit": func(t *testing.T) string { return testserver.RequireRabbit(t).URL() },
	"redis":  func(t *testing.T) string { return testserver.RequireRedis(t).URL() },
	"nats":   func(t *testing.T) string { return testserver.RequireNATS(t).URL() },
}

// swarmAt opens a swarm and returns it with a consumer of it and a running log. change changes the
// URL of the server.
func swarmAt(t *testing.T, server string, change func(*url.URL)) (*open.Swarm, *consumer.Consumer, *lines) {
	t.Helper()
	u, err := url.Parse(server)
	must0(t, err)
	q := u.Query()
	q.Set("namespace", testserver.Namespace())
	u.RawQuery = q.Encode()
	change(u)
	log := &lines{}
	s, err := open.Open(t.Context(), u.String(), open.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	must0(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), serverPatience)
		defer cancel()
		_ = s.Close(ctx)
	})
	c, err := s.Consumer(consumer.Config{})
	must0(t, err)
	must0(t, echo.Handle(c, func(_ context.Context, i int) (int, error) { return i, nil }))
	return s, c, log
}

// TestWrongPassword shows that Run of a consumer with a wrong password returns the refusal.
func TestWrongPassword(t *testing.T) {
	for name, at := range serverURLs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, c, log := swarmAt(t, at(t), func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), "wrong-secret") })
			ctx, cancel := context.WithTimeout(t.Context(), serverPatience)
			defer cancel()
			err := c.Run(ctx)
			if !errors.Is(err, broker.ErrAccess) || ctx.Err() != nil {
				t.Errorf("Run returned %v (%v); the log is:\n%s", err, ctx.Err(), log.text())
			} else {
				t.Log(err)
			}
			if err != nil && strings.Contains(err.Error(), "wrong-secret") || log.count("wrong-secret") != 0 {
				t.Error("the password was shown")
			}
			if log.count("cannot be reached") != 0 {
				t.Errorf("a server that answered cannot be reached:\n%s", log.text())
			}
		})
	}
}

// TestNoServerAtTheStart shows that a consumer without a server soon logs which queue of which
// server cannot be reached, and why.
func TestNoServerAtTheStart(t *testing.T) {
	for name, at := range serverURLs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const addr = "127.0.0.1:1" // no server listens on this port
			_, c, log := swarmAt(t, at(t), func(u *url.URL) { u.Host = addr })
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- c.Run(ctx) }()
			within(t, "the log names the queue", func() bool { return log.count("the broker cannot be reached") > 0 })
			for line := range strings.Lines(log.text()) {
				if strings.Contains(line, "the broker cannot be reached") {
					for _, part := range []string{addr, "connection refused", "queue=default", "repeated"} {
						if !strings.Contains(line, part) {
							t.Errorf("the line lacks %q: %s", part, line)
						}
					}
				}
			}
			cancel()
			must0(t, <-ended)
		})
	}
}

// TestPasswordRotation shows that a consumer that works survives a time in which its password is
// refused.
func TestPasswordRotation(t *testing.T) {
	t.Parallel()
	server := testserver.RequireRedis(t)
	do := func(args ...any) {
		t.Helper()
		_, err := server.Do(t.Context(), args...)
		must0(t, err)
	}
	user := "rotating" + testserver.Namespace()
	do("ACL", "SETUSER", user, "on", ">first", "allkeys", "allchannels", "allcommands")
	s, c, log := swarmAt(t, server.URL(), func(u *url.URL) { u.User = url.UserPassword(user, "first") })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	p, err := s.Producer(producer.Config{})
	must0(t, err)
	work := func(i int) {
		t.Helper()
		waiting, cancel := context.WithTimeout(ctx, serverPatience)
		defer cancel()
		f, err := echo.Submit(waiting, p, i)
		must0(t, err)
		if got, err := f.Get(waiting); err != nil || got != i {
			t.Errorf("task %d: %d, %v", i, got, err)
		}
	}
	work(1)
	do("ACL", "SETUSER", user, "resetpass", ">second")
	do("CLIENT", "KILL", "USER", user)
	within(t, "the refusal is logged", func() bool { return log.count("invalid username-password pair") > 0 })
	do("ACL", "SETUSER", user, "resetpass", ">first")
	work(2)
	cancel()
	must0(t, <-ended)
	must0(t, p.Close(t.Context()))
}
