package bedrock

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestMemoryOfPages shows that pages do not become too large when large jobs follow small ones.
func TestMemoryOfPages(t *testing.T) {
	const maxMemory, most, deaf, large = 64 << 20, 256 << 20, 10, 64
	if raced {
		t.Log("the race detector takes more than what is measured")
		return
	}
	data := strings.Repeat("x", 1000<<10)
	measure(t, maxMemory, most, func(t *testing.T, addr string) {
		c := dial(t, addr)
		c.ask("CreateJobs\njobs: ["+strings.TrimSuffix(strings.Repeat(`{"name":"large"},`, 4+8+16+32+64), ",")+"]\n\n").wantStatus(t, ok)
		for range large {
			_ = c.SetDeadline(time.Now().Add(patience))
			c.ask("CreateJob\nname: large\ndata: {\"text\":\""+data+"\"}\n\n").wantStatus(t, ok)
		}
		all := make([]*client, deaf)
		for i := range all {
			all[i] = dial(t, addr)
			_ = all[i].Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
			all[i].send("Query\nquery: select * from jobs\n\n")
		}
		for i, c := range all {
			testwait.Until(t, fmt.Sprint("answer ", i), func() bool { return unread(t, c) > 0 })
		}
	})
}

// TestMemoryOfBatches shows that jobs claimed for clients that do not read use no more memory,
// whether small jobs precede them or not.
func TestMemoryOfBatches(t *testing.T) {
	const maxMemory, most, deaf, large = 64 << 20, 256 << 20, 16, 30
	if raced {
		t.Log("the race detector takes more than what is measured")
		return
	}
	data := strings.Repeat("x", 1000<<10)
	for name, small := range map[string]int{"large jobs": 1, "small jobs before": 10} {
		t.Run(name, func(t *testing.T) {
			measure(t, maxMemory, most, func(t *testing.T, addr string) {
				c := dial(t, addr)
				list := func(one string, n int) {
					_ = c.SetDeadline(time.Now().Add(patience))
					c.ask("CreateJobs\njobs: ["+strings.TrimSuffix(strings.Repeat(one+",", n), ",")+"]\n\n").wantStatus(t, ok)
				}
				for i := range deaf {
					list(fmt.Sprintf(`{"name":"n%d"}`, i), small)
					for range large / 5 { // a request has at most 8 MiB
						list(fmt.Sprintf(`{"name":"n%d","data":{"text":%q}}`, i, data), 5)
					}
				}
				all := make([]*client, deaf)
				for i := range all {
					all[i] = dial(t, addr)
					_ = all[i].Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
					all[i].send(fmt.Sprintf("GetJobs\nname: n%d\nnumResults: 1000\n\n", i))
				}
				for i, c := range all { // an answer begins after all of its jobs are claimed
					_ = c.SetDeadline(time.Now().Add(10 * patience))
					if _, err := c.in.Peek(1); err != nil {
						t.Fatalf("answer %d: %v", i, err)
					}
				}
			})
		})
	}
}
