package redisresults_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/redisresults"
	"github.com/swarmiji/swarmiji/task"
)

// The store repeats a Save whose answer is lost, and the submitter receives the record once.
func TestLostAnswerIsAskedForAgain(t *testing.T) {
	srv := testserver.RequireRedis(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	ns := testserver.Namespace()
	submitter := open(t, options(srv, srv.Addr()), ns)
	n := notify(t, submitter, "node")
	consumer := open(t, options(srv, proxy.Addr()), ns)
	save(t, consumer, done("node", 0))
	receive(t, n, done("node", 0))

	proxy.BlackHole(false, true)
	saved := make(chan error, 1)
	go func() { saved <- consumer.Save(testwait.Long(t), done("node", 1)) }()
	receive(t, n, done("node", 1)) // the server has executed it
	select {
	case err := <-saved:
		t.Fatalf("Save returned %v before its answer could come", err)
	default:
	}
	proxy.Heal() // closes the connection
	if err := <-saved; err != nil {
		t.Fatalf("Save whose answer was lost: %v", err)
	}
	save(t, consumer, done("node", 2))
	receive(t, n, done("node", 2)) // and the first record does not arrive again
}

// A caller that stops waiting delays neither other callers of its batch nor later ones.
func TestCallersThatLeave(t *testing.T) {
	srv := testserver.RequireRedis(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	s := open(t, options(srv, proxy.Addr()), testserver.Namespace())
	save(t, s, done("", 0))
	proxy.BlackHole(true, true)
	ctx, cancel := context.WithCancel(t.Context())
	const n = 50
	left, stayed := make(chan error, n), make(chan error, n)
	for i := range n {
		go func() { left <- s.Save(ctx, done("", 100+i)) }()
		go func() { stayed <- s.Save(testwait.Long(t), done("", 200+i)) }()
	}
	cancel()
	for range n {
		if err := <-left; !errors.Is(err, context.Canceled) || !errors.Is(err, resultstore.ErrUnavailable) && !errors.Is(err, context.Canceled) {
			t.Errorf("Save with a cancelled ctx: %v", err)
		}
	}
	proxy.Heal()
	for range n {
		if err := <-stayed; err != nil {
			t.Errorf("Save beside callers that left: %v", err)
		}
	}
	for i := range n {
		wantRecord(t, s, done("", 200+i))
	}
}

// Close waits for running Saves until its ctx ends.
func TestCloseWaitsForSaves(t *testing.T) {
	srv := testserver.RequireRedis(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	ns := testserver.Namespace()
	for _, heal := range []bool{true, false} {
		s := open(t, options(srv, proxy.Addr()), ns)
		save(t, s, done("", 0))
		// A batch stays in the list for a moment after its records are answered.
		testwait.Until(t, "the first record is off the list", func() bool { return !redisresults.Saving(s) })
		proxy.BlackHole(true, true)
		saved := make(chan error, 1)
		go func() { saved <- s.Save(testwait.Long(t), done("", 1)) }()
		testwait.Until(t, "the second record is on its way", func() bool { return len(saved) > 0 || redisresults.Saving(s) })
		closed := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if !heal {
			cancel()
		}
		go func() { closed <- s.Close(ctx) }()
		if heal {
			proxy.Heal()
			if err := errors.Join(<-saved, <-closed); err != nil {
				t.Errorf("Save and Close through a fault that ended: %v", err)
			}
		} else {
			if err := <-closed; !errors.Is(err, context.Canceled) {
				t.Errorf("Close with an ended ctx while a Save waits: %v, want ctx's error", err)
			}
			if err := <-saved; err == nil {
				t.Error("Save without an answer reported success")
			}
			proxy.Heal()
		}
		cancel()
	}
}

// The store works over TLS and sends no record to a server with an unknown authority.
func TestTLS(t *testing.T) {
	t.Parallel()
	files, err := testserver.NewTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	trusting, err := files.ClientConfig(false)
	if err != nil {
		t.Fatal(err)
	}
	srv := testserver.OwnRedis(t, testserver.RedisConfig{TLS: files})
	with := func(c *tls.Config) *redis.UniversalOptions {
		o := options(srv, srv.TLSAddr())
		o.TLSConfig = c
		return o
	}
	s := open(t, with(trusting), "tls")
	n := notify(t, s, "node")
	save(t, s, done("node", 1))
	receive(t, n, done("node", 1))
	wantRecord(t, s, done("node", 1))

	stranger := open(t, with(&tls.Config{MinVersion: tls.VersionTLS12, ServerName: "127.0.0.1"}), "tls")
	for name, call := range map[string]func(ctx context.Context) error{
		"Notify": func(ctx context.Context) error { _, err := stranger.Notify(ctx, "node"); return err },
		"Save":   func(ctx context.Context) error { return stranger.Save(ctx, done("node", 2)) },
		"Load":   func(ctx context.Context) error { _, err := stranger.Load(ctx, "task-1"); return err },
	} {
		testwait.UntilNil(t, name+" on a server of an unknown authority is ErrUnavailable because of its certificate", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := call(ctx)
			if !errors.Is(err, resultstore.ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
				return fmt.Errorf("it is %w", err)
			}
			return nil
		})
	}
}

// After a crash of a server without persistence the store continues with the remaining records.
func TestServerThatForgets(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRedis(t, testserver.RedisConfig{AOF: "off"})
	s := open(t, options(srv, srv.Addr()), "forgets")
	n := notify(t, s, "node")
	save(t, s, done("node", 1))
	receive(t, n, done("node", 1))
	if err := srv.Restart(testwait.Long(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(testwait.Long(t), "task-1"); !errors.Is(err, resultstore.ErrNotFound) {
		t.Errorf("Load of what the server has forgotten: %v, want ErrNotFound", err)
	}
	r := done("node", 1)
	r.State = task.StateFailed
	save(t, s, r)
	wantRecord(t, s, r)
}

// Load and Delete return when their ctx is cancelled, although the server is silent and no deadline
// is set.
func TestCancelWhileTheServerIsSilent(t *testing.T) {
	srv := testserver.RequireRedis(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	o := options(srv, proxy.Addr()) // with timeouts far above that of the test
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = 2*time.Minute, 2*time.Minute, 2*time.Minute
	s := open(t, o, testserver.Namespace())
	save(t, s, done("", 1))
	wantRecord(t, s, done("", 1))
	proxy.BlackHole(true, true)
	defer proxy.Heal()
	for name, call := range map[string]func(ctx context.Context) error{
		"Load":   func(ctx context.Context) error { _, err := s.Load(ctx, "task-1"); return err },
		"Delete": func(ctx context.Context) error { return s.Delete(ctx, "task-1") },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- call(ctx) }()
		time.AfterFunc(100*time.Millisecond, cancel)
		select {
		case err := <-ended:
			if !errors.Is(err, resultstore.ErrUnavailable) || !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v, want ErrUnavailable because of ctx", name, err)
			}
		case <-time.After(2 * time.Minute):
			t.Errorf("%s outlives its ctx", name)
		}
	}
}

// Notify returns at once if the server refuses the channel.
func TestRefusedChannelIsToldAtOnce(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRedis(t, testserver.RedisConfig{})
	do(t, srv, "ACL", "SETUSER", "limited", "on", ">hunter2", "~*", "+@all", "resetchannels")
	s := open(t, &redis.UniversalOptions{Addrs: []string{srv.Addr()}, Username: "limited", Password: "hunter2"}, "acl")
	_, err := s.Notify(testwait.Long(t), "node")
	if !errors.Is(err, resultstore.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("Notify without permission: %v, want ErrUnavailable that says why, before ctx ends", err)
	}
}
