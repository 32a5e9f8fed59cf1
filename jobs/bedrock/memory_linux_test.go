package bedrock

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/swarmiji/swarmiji/internal/testwait"
)

// peak returns the maximum memory of a server in bytes, from VmHWM of /proc. The race detector
// itself uses several times as much; with it, peak returns the memory that Go obtained from the
// system.
func peak(t *testing.T, c *child) int64 {
	t.Helper()
	if raced {
		if _, err := fmt.Fprintln(c.stdin); err != nil {
			t.Fatal(err)
		}
		line, err := c.out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return number(t, strings.TrimSpace(line))
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	return number(t, strings.Fields(after)[0]) << 10
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// unread returns the number of received bytes that a client has not read.
func unread(t *testing.T, c *client) int {
	t.Helper()
	var n int32
	control(t, c.Conn.(*net.TCPConn), func(fd int) error {
		if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TIOCINQ, uintptr(unsafe.Pointer(&n))); e != 0 {
			return e
		}
		return nil
	})
	return int(n)
}

// TestMemoryOfProcess shows that the memory of a server under load stays close to MaxMemory.
func TestMemoryOfProcess(t *testing.T) {
	const (
		maxMemory = 64 << 20
		most      = 256 << 20
		deaf      = 20
	)
	list := func(one string) string {
		return "CreateJobs\njobs: [" + strings.TrimSuffix(strings.Repeat(one+",", (7<<20)/(len(one)+1)), ",") + "]\n\n"
	}
	lists := map[string]string{
		"too many":  list(`{"name":"foo"}`),
		"empty":     list(`{}`),
		"no jobs":   list(`0`),
		"members":   "CreateJobs\njobs: [{" + strings.TrimSuffix(strings.Repeat(`"a":0,`, (7<<20)/6), ",") + "}]\n\n",
		"all right": list(`{"name":"foo","firstRun":"2199-01-01","data":{"text":"` + strings.Repeat("x", 1000) + `"}}`),
		"ids":       "RequeueJobs\njobIDs: " + strings.Repeat("1,", (7<<20)/2) + "\n\n",
		"repeat":    "CreateJob\nname: foo\nrepeat: " + strings.Repeat("a,", (7<<20)/2) + "\n\n",
	}
	data := strings.Repeat("x", 1000<<10)
	filled, with := 56, []string{"too many", "empty", "members", "all right"}
	if raced { // the race detector makes all of this slow
		filled, with = 14, []string{"too many", "empty", "members", "empty"}
	}
	fill := func(t *testing.T, addr string) {
		c := dial(t, addr)
		for range filled {
			_ = c.SetDeadline(time.Now().Add(patience))
			c.ask("CreateJob\nname: large\ndata: {\"text\":\""+data+"\"}\n\n").wantStatus(t, ok)
		}
	}
	for name, run := range map[string]func(t *testing.T, addr string){
		"nothing": func(*testing.T, string) {},
		"filled":  fill,
		"deaf clients and lists": func(t *testing.T, addr string) {
			fill(t, addr)
			var group sync.WaitGroup
			var all []*client
			for range deaf {
				c := dial(t, addr)
				_ = c.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
				c.send("Query\nquery: select * from jobs\n\n")
				all = append(all, c)
			}
			for _, list := range with {
				c := dial(t, addr)
				text := lists[list]
				group.Go(func() {
					// the server may refuse it before all is sent
					go func() { _, _ = c.Conn.Write([]byte(text)) }()
					t.Log(c.next().Status)
				})
			}
			group.Wait()
			for _, c := range all {
				testwait.Until(t, "its answer has begun", func() bool { return unread(t, c) > 0 })
			}
		},
		"workers that read nothing": func(t *testing.T, addr string) {
			fill(t, addr)
			var all []*client
			for i := range deaf {
				c := dial(t, addr)
				_ = c.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
				c.send([]string{"GetJobs\nname: *\nnumResults: 100\n\n", "GetJob\nname: *\n\n"}[i%2])
				all = append(all, c)
			}
			for _, c := range all {
				testwait.Until(t, "its answer has begun", func() bool { return unread(t, c) > 0 })
			}
		},
	} {
		if raced && !strings.HasPrefix(name, "deaf") {
			continue
		}
		t.Run(name, func(t *testing.T) { measure(t, maxMemory, most, run) })
	}
	for name, text := range lists {
		if raced && name != "too many" {
			continue
		}
		t.Run("one list: "+name, func(t *testing.T) {
			measure(t, maxMemory, most/2, func(t *testing.T, addr string) {
				t.Log(dial(t, addr).ask(text).Status)
			})
		})
	}
}

// TestMemoryOfSmallLists shows that the memory of many lists is limited, also if each is small. A
// job of a list needs much more memory than its text.
func TestMemoryOfSmallLists(t *testing.T) {
	if raced {
		t.Log("the race detector takes more than what is measured")
		return
	}
	for _, c := range []struct {
		clients, size int
		one           string
	}{
		{40, 62 << 10, `{"name":"a"}`},
		{60, 62 << 10, `{"name":"a","unique":true}`},
		{400, 3900, `{"name":"a"}`},
	} {
		list := "CreateJobs\njobs: [" + strings.TrimSuffix(strings.Repeat(c.one+",", c.size/(len(c.one)+1)), ",") + "]\n\n"
		t.Run(fmt.Sprintf("%d lists of %d bytes of %s", c.clients, len(list), c.one), func(t *testing.T) {
			measure(t, 64<<20, 256<<20, func(t *testing.T, addr string) {
				all := make([]*client, c.clients)
				for i := range all {
					all[i] = dial(t, addr)
					_ = all[i].SetDeadline(time.Now().Add(10 * patience))
				}
				var group sync.WaitGroup
				for _, c := range all {
					group.Go(func() {
						c.send(list)
						if got := c.next(); got.Status != ok {
							t.Error(got.Status)
						}
					})
				}
				group.Wait()
			})
		})
	}
}

// measure runs a server in a process of its own and checks its maximum memory.
func measure(t *testing.T, maxMemory, most int64, run func(t *testing.T, addr string)) {
	t.Helper()
	c := startChild(t, filepath.Join(t.TempDir(), "jobs.db"), "127.0.0.1:0", envMemory+"="+strconv.FormatInt(maxMemory, 10))
	defer c.kill()
	run(t, c.addr)
	got := peak(t, c)
	t.Logf("it had %d MiB", got>>20)
	if got > most {
		t.Errorf("the server had %d MiB, want at most %d", got>>20, most>>20)
	}
}
