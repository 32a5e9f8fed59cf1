package amqpbroker_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// relay is a TCP relay whose only goroutine beside those of its connections starts when it is made, so that cases which
// count goroutines can cut connections.
type relay struct {
	upstream string
	listener net.Listener
	done     sync.WaitGroup

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{}
}

func newRelay(t testing.TB, upstream string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("relay: %v", err)
	}
	r := &relay{upstream: upstream, listener: l, conns: make(map[net.Conn]struct{})}
	r.done.Go(r.accept)
	t.Cleanup(func() {
		_ = l.Close()
		r.sever()
		r.done.Wait()
	})
	return r
}

func (r *relay) addr() string { return r.listener.Addr().String() }

func (r *relay) accept() {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", r.upstream)
		if err != nil || !r.add(in, out) {
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

// add notes the two ends of a connection, unless the line is cut.
func (r *relay) add(in, out net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut {
		return false
	}
	r.conns[in], r.conns[out] = struct{}{}, struct{}{}
	return true
}

func (r *relay) pipe(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	_ = from.Close()
	_ = to.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, from)
}

// sever closes all connections; new ones are accepted.
func (r *relay) sever() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.Close()
	}
}

// set cuts the line, or heals it.
func (r *relay) set(cut bool) {
	r.mu.Lock()
	r.cut = cut
	r.mu.Unlock()
	if cut {
		r.sever()
	}
}
