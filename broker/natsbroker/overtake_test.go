package natsbroker_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/natsbroker"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestUrgentOnItsWay shows that no less urgent message is delivered before the last urgent one. In
// a cluster, the answer that no urgent message is left may overtake that message.
func TestUrgentOnItsWay(t *testing.T) {
	srv := testserver.RequireNATS(t)
	ns := testserver.Namespace()
	pub := connect(t, natsbroker.Config{Connect: natsconnect.Config{URLs: []string{srv.URL()}}, Namespace: ns})
	if err := pub.Declare(testwait.Long(t), broker.Queue{Name: "q", Levels: []int{10, 1000}}); err != nil {
		t.Fatal(err)
	}
	publishUrgent(t, pub)
	line := newSlowLine(t, srv)
	s, err := connect(t, natsbroker.Config{Connect: natsconnect.Config{URLs: []string{line.url}}, Namespace: ns}).
		Subscribe(testwait.Long(t), "q", broker.SubscribeOptions{Prefetch: 1})
	if err != nil {
		t.Fatal(err)
	}
	line.hold()
	var got []string
	for range 3 {
		d, err := s.Receive(testwait.Long(t))
		if err != nil {
			t.Fatalf("Receive after %v: %v", got, err)
		}
		got = append(got, d.Message().ID)
		if err := d.Ack(testwait.Long(t)); err != nil {
			t.Fatal(err)
		}
	}
	if got[2] != "slow" {
		t.Errorf("received %v, want the less urgent one last", got)
	}
}

// publishUrgent publishes two urgent messages and a less urgent one: urgent-1, urgent-2 and slow.
func publishUrgent(t *testing.T, b *natsbroker.Broker) {
	t.Helper()
	for _, id := range []string{"urgent-1", "urgent-2", "slow"} {
		m := message(id)
		if m.Priority = 5; id == "slow" {
			m.Priority = 500
		}
		if err := b.Publish(testwait.Long(t), "q", m); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUrgentBesidePausedServers shows the same for a server that cannot send an urgent message,
// because the other servers of its cluster do not answer. By its counters that message no longer
// waits, and none was delivered since the last.
func TestUrgentBesidePausedServers(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: one server only")
	}
	t.Parallel()
	c := testserver.OwnNATSCluster(t, testserver.NATSConfig{})
	cfg := natsbroker.Config{Connect: natsconnect.Config{URLs: c.URLs()}, Namespace: testserver.Namespace(), Replicas: 3}
	pub := connect(t, cfg)
	declare(t, pub, 10, 1000)
	// the consumers of the levels stay when the subscription ends
	if err := subscribe(t, pub, broker.SubscribeOptions{}).Close(testwait.Long(t)); err != nil {
		t.Fatal(err)
	}
	leader := consumerLeader(t, c, "SWJ_"+cfg.Namespace, "w_q_0")
	publishUrgent(t, pub)
	cfg.Connect.URLs = []string{c.Nodes[leader].URL()}
	b := connect(t, cfg)
	s := subscribe(t, b, broker.SubscribeOptions{Prefetch: 1})
	testwait.Until(t, "one message of each level is held, and one waits", func() bool {
		st, err := b.Stats(testwait.Long(t), "q")
		return err == nil && st.Held == 2 && st.Ready == 1
	})
	first := receive(t, s)
	var asked atomic.Int64
	questions, err := bare(t, c.Nodes[leader].URL()).Conn().Subscribe("$JS.EVENT.ADVISORY.API", func(m *nats.Msg) {
		if bytes.Contains(m.Data, []byte("CONSUMER.INFO.SWJ_"+cfg.Namespace+".w_q_0")) {
			asked.Add(1)
		}
	})
	if err == nil {
		err = questions.SetPendingLimits(-1, -1)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range c.Nodes {
		if i != leader {
			n.Pause()
			defer n.Resume() // idempotent
		}
	}
	ack(t, first) // requests the next one, which the server takes and cannot send
	asked.Store(0)
	type received struct {
		d   broker.Delivery
		err error
	}
	next := make(chan received, 1)
	go func() {
		d, err := s.Receive(testwait.Long(t))
		next <- received{d, err}
	}()
	testwait.Until(t, "the client asks for the state of the first level", func() bool { return asked.Load() > 5 || len(next) > 0 })
	for _, n := range c.Nodes {
		n.Resume()
	}
	second := <-next
	if second.err != nil {
		t.Fatal(second.err)
	}
	if one, two := first.Message().ID, second.d.Message().ID; one != "urgent-1" || two != "urgent-2" {
		t.Errorf("received %s and %s, want urgent-1 and urgent-2", one, two)
	}
}

// consumerLeader returns the index of the server that leads a consumer.
func consumerLeader(t *testing.T, c *testserver.NATSCluster, stream, consumer string) int {
	t.Helper()
	js := bare(t, c.URL())
	leader := -1
	testwait.Until(t, "the consumer has a leader", func() bool {
		con, err := js.Consumer(testwait.Long(t), stream, consumer)
		if err != nil || con.CachedInfo().Cluster == nil {
			return false
		}
		leader = slices.IndexFunc(c.Nodes, func(n *testserver.NATS) bool { return n.Name() == con.CachedInfo().Cluster.Leader })
		return leader >= 0
	})
	return leader
}

// slowLine is a connection to a server. After hold it keeps the last message of the first level
// back, until the client has asked eight times for the state of a consumer. The client has then got
// seven answers without the message.
type slowLine struct {
	url string

	mu    sync.Mutex
	on    bool
	asked int
	held  func() // forwards the message that is kept back
}

func newSlowLine(t *testing.T, srv *testserver.NATS) *slowLine {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(srv.URL())
	if err != nil {
		t.Fatal("the server's URL does not parse")
	}
	u.Host = listener.Addr().String()
	l := &slowLine{url: u.String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", srv.Addr())
		if err != nil {
			t.Errorf("dialling the server: %v", err)
			_ = client.Close()
			return
		}
		for from, to := range map[net.Conn]net.Conn{client: server, server: client} {
			wg.Go(func() {
				if err := l.pass(from, to, from == client); err != nil && !errors.Is(err, net.ErrClosed) {
					t.Errorf("the line: %v", err)
				}
				_ = from.Close()
				_ = to.Close()
			})
		}
	})
	t.Cleanup(func() { // after the Broker has closed its connection
		_ = listener.Close()
		wg.Wait()
	})
	return l
}

func (l *slowLine) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on = true
}

// pass forwards the frames of one direction until it ends.
func (l *slowLine) pass(from io.Reader, to io.Writer, up bool) error {
	r := bufio.NewReader(from)
	for {
		frame, err := readFrame(r)
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		forward := func() error {
			_, err := to.Write(frame)
			return err
		}
		l.mu.Lock()
		switch {
		case up && l.held != nil && bytes.Contains(frame, []byte("$JS.API.CONSUMER.INFO.")):
			if l.asked++; l.asked == 8 {
				l.held()
				l.held, l.on = nil, false
			}
			err = forward()
		case !up && l.on && bytes.Contains(frame, []byte("$JS.ACK.")) && bytes.Contains(frame, []byte("urgent-2")):
			l.held = func() { _ = forward() } // an error shows as a missing message
		default:
			err = forward()
		}
		l.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// readFrame reads one frame of the NATS protocol: a line, and for some frames a body.
func readFrame(r *bufio.Reader) ([]byte, error) {
	frame, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(frame))
	switch fields[0] {
	case "PUB", "HPUB", "MSG", "HMSG":
		n, err := strconv.Atoi(fields[len(fields)-1])
		if err != nil {
			return nil, err
		}
		body := make([]byte, n+len("\r\n"))
		if _, err := io.ReadFull(r, body); err != nil {
			return nil, err
		}
		frame = append(frame, body...)
	}
	return frame, nil
}
