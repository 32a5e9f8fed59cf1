package natsbroker_test

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/brokertest"
	"github.com/swarmiji/swarmiji/broker/natsbroker"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// oldServer starts the machine's nats-server if its version has no schedules, as in Debian 12.
// Otherwise it skips the test.
func oldServer(t *testing.T) (url string) {
	t.Helper()
	program, err := exec.LookPath("nats-server")
	if err != nil {
		t.Skip("there is no nats-server on this machine; install the package nats-server of Debian 12")
	}
	version, err := exec.CommandContext(testwait.Long(t), program, "--version").Output()
	if err != nil || !strings.Contains(string(version), "v2.9.") {
		t.Skipf("the nats-server of this machine is not one of 2.9: %s", version)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-a", host, "-p", port, "-js", "-sd", t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	url = "nats://" + addr
	testwait.Until(t, "the old server", func() bool {
		nc, err := nats.Connect(url)
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
	return url
}

func TestOldServer(t *testing.T) {
	t.Parallel()
	url := oldServer(t)
	brokertest.Run(t, func(c testing.TB) *brokertest.Harness {
		switch area := strings.Split(c.Name(), "/")[1]; area {
		case "deliver", "order", "fair", "delay", "batch", "retry", "dead_letters", "lease", "witness":
		default:
			c.Skip("does not depend on the server's version")
		}
		skipLong(c)
		ns := testserver.Namespace()
		return &brokertest.Harness{
			Open: func(t testing.TB) broker.Broker {
				return open(t, natsbroker.Config{Connect: natsconnect.Config{URLs: []string{url}}, Namespace: ns, MaxBody: 500_000})
			},
			Promises: brokertest.Promises{
				Durable: true, ExactCount: true, Dedupe: true, Order: true, Priorities: true, Lanes: true, Delays: true, Batch: true, Retry: true,
				SyncAck: true, Resize: true, Inspect: true, DeadLetters: true, Oldest: true, Find: true, Queues: true, List: true, DeadByID: true, Watch: true, Witness: true, Outlives: true, Forgets: true, MaxBody: 500_000,
			},
			Leases: testLease,
			Quiet:  testQuiet,
		}
	})
}

func TestOldServerIsNamed(t *testing.T) {
	t.Parallel()
	var log logBook
	b := connect(t, natsbroker.Config{Connect: natsconnect.Config{URLs: []string{oldServer(t)}}, Logger: log.logger()})
	declare(t, b)
	if !strings.Contains(log.String(), "too old for schedules") {
		t.Errorf("the log says %q", log.String())
	}
	at := time.Now().Add(700 * time.Millisecond)
	if err := b.PublishAt(testwait.Long(t), "q", message("a"), at); err != nil {
		t.Fatalf("PublishAt: %v", err)
	}
	f, err := b.Find(testwait.Long(t), "q", "a")
	if err != nil || f.At.Sub(at).Abs() > time.Millisecond {
		t.Fatalf("Find of a delayed message: %+v, %v", f, err)
	}
	if err := b.Update(testwait.Long(t), "q", broker.Outgoing{Message: message("a"), At: time.Now().Add(time.Second)}); err != nil {
		t.Errorf("Update of a delayed message: %v", err)
	}
	s := subscribe(t, b, broker.SubscribeOptions{Prefetch: 1})
	publish(t, b, "b")
	for _, want := range []string{"b", "a"} {
		d := receive(t, s)
		if n, exact := d.Deliveries(); d.Message().ID != want || n != 1 || !exact {
			t.Errorf("received %s, delivery %d, %v; want %s, 1, true", d.Message().ID, n, exact, want)
		}
		ack(t, d)
	}
	if time.Now().Before(at) {
		t.Error("the delayed message came early")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Receive of an empty queue: %v", err)
	}
}
