package testserver_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

func TestMain(m *testing.M) {
	if os.Getenv(childMode) == "1" {
		child()
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}

// dial opens a connection and a channel. The end of the test closes both.
func dial(tb testing.TB, url string) *amqp.Channel {
	tb.Helper()
	conn, err := amqp.DialConfig(url, amqp.Config{Heartbeat: 2 * time.Second, Dial: amqp.DefaultDial(5 * time.Second)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		tb.Fatal(err)
	}
	return ch
}

func deadline(tb testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(tb.Context(), d)
	tb.Cleanup(cancel)
	return ctx
}

func publishConfirmed(tb testing.TB, ch *amqp.Channel, queue, body string) {
	tb.Helper()
	if err := ch.Confirm(false); err != nil {
		tb.Fatal(err)
	}
	conf, err := ch.PublishWithDeferredConfirm("", queue, true, false,
		amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)})
	if err != nil {
		tb.Fatal(err)
	}
	if ok, err := conf.WaitContext(deadline(tb, 10*time.Second)); err != nil || !ok {
		tb.Fatalf("publish not confirmed: %v %v", ok, err)
	}
}

func wantMessage(tb testing.TB, ch *amqp.Channel, queue, body string) {
	tb.Helper()
	d, ok, err := ch.Get(queue, true)
	if err != nil || !ok || string(d.Body) != body {
		tb.Fatalf("Get of %s = %q, %v, %v; want %q, which was confirmed", queue, d.Body, ok, err, body)
	}
}

// A durable queue and its confirmed message survive a restart in good order and SIGKILL, on the
// same URL.
func TestRabbitRestartKeepsDurableQueue(t *testing.T) {
	testserver.Thorough(t) // the suites restart such a server, and faulttest kills it
	r := testserver.RequireRabbit(t)
	for name, down := range map[string]func(){
		"restart": func() {},
		"killed":  r.Kill,
	} {
		t.Run(name, func(t *testing.T) {
			queue := testserver.Namespace()
			ch := dial(t, r.URL())
			if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
				t.Fatal(err)
			}
			publishConfirmed(t, ch, queue, name)
			lost := ch.NotifyClose(make(chan *amqp.Error, 1))
			down()
			if err := r.Restart(deadline(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			select {
			case <-lost:
			case <-time.After(10 * time.Second):
				t.Fatal("the old connection was not closed by the restart")
			}
			wantMessage(t, dial(t, r.URL()), queue, name)
		})
	}
}

// RequireRabbit returns a working node after a test killed or paused it.
func TestRequireRabbitMends(t *testing.T) {
	testserver.Thorough(t)
	for name, breakIt := range map[string]func(*testserver.Rabbit){
		"killed": (*testserver.Rabbit).Kill,
		"paused": (*testserver.Rabbit).Pause,
	} {
		t.Run(name, func(t *testing.T) {
			breakIt(testserver.RequireRabbit(t))
			dial(t, testserver.RequireRabbit(t).URL())
		})
	}
}

func TestRabbitPauseSilences(t *testing.T) {
	r := testserver.RequireRabbit(t)
	ch := dial(t, r.URL())
	r.Pause()
	reply := make(chan error, 1)
	go func() {
		_, err := ch.QueueDeclare("", false, true, true, false, nil)
		reply <- err
	}()
	select {
	case err := <-reply:
		t.Errorf("a paused node answered within 300 ms: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	r.Resume()
	select {
	case err := <-reply:
		if err != nil {
			t.Errorf("after Resume: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("no answer after Resume")
	}
}

func TestRabbitVhostIsOfItsOwn(t *testing.T) {
	r := testserver.RequireRabbit(t)
	queue := testserver.Namespace()
	if _, err := dial(t, r.URL()).QueueDeclare(queue, false, false, true, false, nil); err != nil {
		t.Fatal(err)
	}
	_, err := dial(t, r.NewVhost(t)).QueueDeclarePassive(queue, false, false, true, false, nil)
	if e, ok := errors.AsType[*amqp.Error](err); !ok || e.Code != amqp.NotFound {
		t.Errorf("the queue of the default vhost seen from another: %v; want 404", err)
	}
}

func TestRabbitEval(t *testing.T) {
	r := testserver.RequireRabbit(t)
	if out, err := r.Eval(t.Context(), `io:format("~w ", [1 + 1]), io:format("~s", [<<"two">>])`); out != "2 two" || err != nil {
		t.Errorf("printed %q, %v", out, err)
	}
	for _, bad := range []string{"no:such()", "1 +", "{ok, 1} = {ok, 2}", `io:format("{ok, ok}"), exit(why)`} {
		if out, err := r.Eval(t.Context(), bad); err == nil {
			t.Errorf("%s printed %q and did not fail", bad, out)
		}
	}
}

func TestRabbitMessages(t *testing.T) {
	r := testserver.RequireRabbit(t)
	queue := testserver.Namespace()
	ch := dial(t, r.URL())
	if _, err := ch.QueueDeclare(queue, false, false, true, false, nil); err != nil {
		t.Fatal(err)
	}
	publishConfirmed(t, ch, queue, "waits")
	for _, taken := range []bool{false, true} { // one that is taken and not acknowledged counts
		if taken {
			if _, ok, err := ch.Get(queue, false); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		testwait.UntilNil(t, "the queue holds its message", func() error {
			queues, err := r.Messages(t.Context())
			if err == nil && queues[queue] != 1 {
				err = fmt.Errorf("%v", queues)
			}
			return err
		})
	}
}

func TestRabbitCloseAllConnections(t *testing.T) {
	r := testserver.RequireRabbit(t)
	lost := dial(t, r.URL()).NotifyClose(make(chan *amqp.Error, 1))
	if err := r.CloseAllConnections(deadline(t, 30*time.Second)); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-lost:
		if err == nil || err.Code != amqp.ConnectionForced {
			t.Errorf("closed with %v, want code 320", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the connection was not closed")
	}
}

func TestRabbitMemoryAlarmBlocks(t *testing.T) {
	r := testserver.RequireRabbit(t)
	for name, set := range map[string]func(context.Context, bool) error{"memory": r.SetMemoryAlarm, "disk": r.SetDiskAlarm} {
		t.Run(name, func(t *testing.T) {
			conn, err := amqp.Dial(r.URL())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			t.Cleanup(func() { _ = set(context.Background(), false) }) // other tests share the node
			blocked := conn.NotifyBlocked(make(chan amqp.Blocking, 2))
			ch, err := conn.Channel()
			if err != nil {
				t.Fatal(err)
			}
			for _, on := range []bool{true, false} {
				if err := set(deadline(t, 30*time.Second), on); err != nil {
					t.Fatal(err)
				}
				// A connection that publishes is told that it is blocked. It may have published before the
				// node knew of the alarm.
				patience, told := time.After(time.Minute), false
				for !told {
					if on {
						if err := ch.PublishWithContext(t.Context(), "", "nowhere", false, false, amqp.Publishing{}); err != nil {
							t.Fatal(err)
						}
					}
					select {
					case b := <-blocked:
						if told = true; b.Active != on {
							t.Fatalf("blocked = %v after the alarm was set to %v", b.Active, on)
						}
					case <-time.After(200 * time.Millisecond):
					case <-patience:
						t.Fatalf("no word of the alarm set to %v", on)
					}
				}
			}
		})
	}
}

func TestRabbitTLS(t *testing.T) {
	testserver.Thorough(t) // internal/amqpconn speaks TLS with such a server
	files, err := testserver.NewTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := testserver.OwnRabbit(t, testserver.RabbitConfig{TLS: files, RequireClientCert: true})
	for _, cert := range []bool{true, false} {
		cfg, err := files.ClientConfig(cert)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := amqp.DialTLS(r.TLSURL(), cfg)
		if (err == nil) != cert {
			t.Errorf("dial with client certificate %v: %v", cert, err)
		}
		if err == nil {
			conn.Close()
		}
	}
}

// Three nodes form a cluster, a quorum queue survives the loss of its leader, and the killed node
// rejoins.
func TestRabbitCluster(t *testing.T) {
	testserver.Thorough(t) // internal/faulttest kills nodes of such a cluster
	c := testserver.OwnRabbitCluster(t, testserver.RabbitConfig{})
	ctx := deadline(t, 90*time.Second)
	queue := testserver.Namespace()
	if _, err := dial(t, c.URLs()[0]).QueueDeclare(queue, true, false, false, false,
		amqp.Table{"x-queue-type": "quorum"}); err != nil {
		t.Fatal(err)
	}
	leader, err := c.Leader(ctx, queue)
	if err != nil {
		t.Fatal(err)
	}
	other := (leader + 1) % len(c.Nodes)
	ch := dial(t, c.URLs()[other])
	publishConfirmed(t, ch, queue, "kept")
	c.KillNode(leader)
	for now := leader; now == leader; {
		if err := ctx.Err(); err != nil {
			t.Fatal("no new leader was elected")
		}
		if next, err := c.Leader(ctx, queue); err == nil {
			now = next
		}
	}
	wantMessage(t, ch, queue, "kept")
	if err := c.RestartNode(ctx, leader); err != nil {
		t.Fatal(err)
	}
	dial(t, c.URLs()[leader])
}

const childMode = "SWARMIJI_TESTSERVER_CHILD"

// child starts a node, prints its address and directory, and waits until it is killed.
func child() {
	r, err := testserver.StartRabbit(context.Background(), testserver.RabbitConfig{})
	if err != nil {
		os.Stdout.WriteString("error " + err.Error() + "\n")
		os.Exit(1)
	}
	dir, err := r.Eval(context.Background(), `io:format("~s", [rabbit_mnesia:dir()])`)
	if err != nil {
		os.Exit(1)
	}
	os.Stdout.WriteString(r.Addr() + " " + dir + "\n")
	select {}
}

// After SIGKILL of the owning process neither the server nor its data remain.
func TestServersEndWithTheirOwner(t *testing.T) {
	testserver.RequireRabbit(t) // skips the test if RabbitMQ is not installed
	cmd := exec.CommandContext(deadline(t, time.Minute), os.Args[0])
	cmd.Env = append(os.Environ(), childMode+"=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4<<10)
	n, err := out.Read(buf)
	addr, dir, ok := strings.Cut(strings.TrimSpace(string(buf[:n])), " ")
	if _, statErr := os.Stat(dir); err != nil || !ok || addr == "error" || statErr != nil {
		t.Fatalf("the child told %q (%v, %v)", buf[:n], err, statErr)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	listens := func() bool {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	exists := func() bool { _, err := os.Stat(dir); return !os.IsNotExist(err) }
	for end := time.Now().Add(20 * time.Second); listens() || exists(); {
		if time.Now().After(end) {
			t.Fatalf("20 s after its owner was killed: listens %v, data exist %v", listens(), exists())
		}
		pause(t, 50*time.Millisecond)
	}
}

// pause waits between two checks of a state that sends no signal.
func pause(t *testing.T, d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}
