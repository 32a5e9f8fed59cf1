package bedrock

import (
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/swarmiji/swarmiji/internal/testwait"
)

// memory returns the size of heap and stacks.
func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// crowd opens n connections that send one request and are then idle. They have no buffers of their
// own.
func crowd(t testing.TB, addr string, n int) (closeAll func()) {
	conns := make([]net.Conn, n)
	buf := make([]byte, 256)
	for i := range conns {
		nc, err := net.DialTimeout("tcp", addr, patience)
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = nc
		if _, err := nc.Write([]byte("Echo\ntext: a\nother: b\nthird: c\n\n")); err != nil {
			t.Fatal(err)
		}
		_ = nc.SetReadDeadline(time.Now().Add(patience))
		if _, err := nc.Read(buf); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}
}

// TestIdleConnections shows that idle connections use little memory.
func TestIdleConnections(t *testing.T) {
	n := 2000 // both ends are in this process, and file descriptors may be few
	s := serve(t, Config{}, echo)
	crowd(t, s.addr, 100)() // one-time allocations
	testwait.Until(t, "they are gone", func() bool { return s.Stats().Connections == 0 })
	before := memory()
	done := crowd(t, s.addr, n)
	defer done()
	// The clients' ends are included: about 500 bytes each.
	each := (int64(memory()) - int64(before)) / int64(n)
	t.Logf("%d bytes for each connection", each)
	if each > 12<<10 {
		t.Errorf("%d bytes for each idle connection", each)
	}
	dial(t, s.addr).ask("Echo\n\n").wantStatus(t, "200 OK")
}

// TestHalfSentRequests shows that the memory of incomplete requests is counted, except a few KiB.
func TestHalfSentRequests(t *testing.T) {
	const n, free = 500, 12 << 10
	for name, line := range map[string]string{"short headers": "aa:bbbbbbbbbbb\n", "one header": strings.Repeat("a", 15<<10)} {
		half := "Echo\n" + strings.Repeat(line, (15<<10)/len(line))
		var counted int64
		readers := make([]*reader, n)
		before := memory()
		for i := range readers {
			rd := newReader(io.MultiReader(strings.NewReader(half), iotest.ErrReader(io.ErrClosedPipe)), limits{head: 8 << 20, body: 8 << 20})
			rd.room = func(delta int) bool { counted += int64(delta); return true }
			if err := rd.next(new(request)); !errors.Is(err, io.ErrClosedPipe) {
				t.Fatal(err)
			}
			rd.src = nil
			readers[i] = rd
		}
		each := (int64(memory()) - int64(before)) / n
		t.Logf("%s: %d bytes for each, of which %d are counted", name, each, counted/n)
		if each > counted/n+free {
			t.Errorf("%s: %d bytes for each half-sent request, and %d are counted", name, each, counted/n)
		}
		for _, rd := range readers {
			rd.close()
		}
		if counted != 0 {
			t.Errorf("%s: %d bytes are not given back", name, counted)
		}
	}
}

// BenchmarkServer measures the protocol without a service: 32 clients on one machine.
func BenchmarkServer(b *testing.B) {
	s := serve(b, Config{}, echo)
	in := compose(nil, "Echo", [][2]string{{"name", "foo"}, {"text", `{"value":1}`}, {"repeat", "finished, +1 minute"}}, "")
	var group sync.WaitGroup
	next := make(chan struct{}, 1024)
	for range 32 {
		nc, err := net.Dial("tcp", s.addr)
		if err != nil {
			b.Fatal(err)
		}
		group.Go(func() {
			defer nc.Close()
			buf := make([]byte, 256)
			for range next {
				_, _ = nc.Write(in)
				_, _ = nc.Read(buf)
			}
		})
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		next <- struct{}{}
	}
	close(next)
	group.Wait()
}
