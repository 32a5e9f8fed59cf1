package bedrock

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestMemoryOfPages: small jobs do not have pages be read that are too large for the large jobs
// behind them.
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
