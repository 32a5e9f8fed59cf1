package testserver

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// Relay is a TCP relay in front of a server that can cut its connections. It does less than a
// [Proxy], but at once: when Sever returns, the connections are closed. Apart from the goroutines
// of its connections it has one goroutine, started by NewRelay. So cases that count goroutines can
// cut connections. Safe for concurrent use.
type Relay struct {
	tb       testing.TB
	listener net.Listener
	done     sync.WaitGroup

	mu       sync.Mutex
	upstream string
	down     bool
	conns    map[net.Conn]struct{}
}

// NewRelay starts a relay to a server's host:port. The end of the test closes it.
func NewRelay(tb testing.TB, upstream string) *Relay {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("relay: %v", err)
	}
	r := &Relay{tb: tb, upstream: upstream, listener: l, conns: make(map[net.Conn]struct{})}
	r.done.Go(r.accept)
	tb.Cleanup(func() {
		_ = l.Close()
		r.Sever()
		r.done.Wait()
	})
	return r
}

// Addr returns the relay's host:port.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// URL returns a URL of the server with the relay's address in place of the server's.
func (r *Relay) URL(upstream string) string {
	r.tb.Helper()
	u, err := url.Parse(upstream)
	if err != nil {
		r.tb.Fatal("relay: the URL of the server does not parse") // its text may contain a password
	}
	u.Host = r.Addr()
	return u.String()
}

// Sever closes all connections. The relay accepts new ones.
func (r *Relay) Sever() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.Close()
	}
}

// SetDown with true closes all connections and every new connection as soon as it is made. With
// false the relay works again.
func (r *Relay) SetDown(down bool) {
	r.mu.Lock()
	r.down = down
	r.mu.Unlock()
	if down {
		r.Sever()
	}
}

// Redirect closes all connections and sends new ones to another server, as an address does that
// moves to a standby.
func (r *Relay) Redirect(upstream string) {
	r.mu.Lock()
	r.upstream = upstream
	r.mu.Unlock()
	r.Sever()
}

// accept is the body of the relay's goroutine: it connects each client to the server and starts two
// goroutines that copy the data. It returns when the listener is closed.
func (r *Relay) accept() {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		upstream := r.upstream
		r.mu.Unlock()
		out, err := net.Dial("tcp", upstream)
		if err != nil || !r.add(in, out, upstream) {
			_ = in.Close()
			if out != nil {
				_ = out.Close()
			}
			continue
		}
		r.done.Go(func() { r.pipe(in, out) })
		r.done.Go(func() { r.pipe(out, in) })
	}
}

// add records the two ends of a connection and returns true. It returns false if the relay is down
// or redirected by now.
func (r *Relay) add(in, out net.Conn, upstream string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down || r.upstream != upstream {
		return false
	}
	r.conns[in], r.conns[out] = struct{}{}, struct{}{}
	return true
}

// pipe copies the data of one direction until the connection ends. Then it closes both ends and
// forgets from. It takes r.mu at the end.
func (r *Relay) pipe(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	_ = from.Close()
	_ = to.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, from)
}
