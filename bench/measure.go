package main

import (
	"encoding/binary"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// meter measures the timed part of a workload.
type meter struct {
	begin   time.Time
	mallocs uint64
	cpu     time.Duration

	latencies []time.Duration // allocated in advance, so that recording does not allocate
	recorded  atomic.Int64
}

// newMeter makes a meter for n latencies. 0: it records none.
func newMeter(n int) *meter { return &meter{latencies: make([]time.Duration, n)} }

// start begins the timed part.
func (m *meter) start() {
	m.mallocs, m.cpu = mallocs(), cpuTime()
	m.begin = time.Now()
}

// record stores a latency, up to the number given to newMeter. Safe for concurrent use.
func (m *meter) record(d time.Duration) {
	if i := m.recorded.Add(1); i <= int64(len(m.latencies)) {
		m.latencies[i-1] = d
	}
}

// stop ends the timed part, in which n tasks passed, and returns its report.
func (m *meter) stop(n int) Report {
	elapsed := time.Since(m.begin)
	r := Report{
		N: n, Seconds: elapsed.Seconds(), Rate: float64(n) / elapsed.Seconds(),
		AllocsPerTask: float64(mallocs()-m.mallocs) / float64(n),
		CPU:           100 * float64(cpuTime()-m.cpu) / float64(elapsed),
	}
	if k := min(int(m.recorded.Load()), len(m.latencies)); k > 0 {
		ls := m.latencies[:k]
		slices.Sort(ls)
		r.P50, r.P99 = milliseconds(ls[k/2]), milliseconds(ls[k*99/100])
	}
	return r
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func mallocs() uint64 {
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	return ms.Mallocs
}

// cpuTime returns the processor time of this process so far, in user and kernel mode.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakRSS returns the maximum memory that this process has used, in KiB, or 0 if the system does
// not report it.
func peakRSS() int {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			if err == nil {
				return kb
			}
		}
	}
	return 0
}

// stampSize is the size of the time at the beginning of an argument.
const stampSize = 8

// stamped returns an argument of the given size that begins with the present time.
func stamped(size int) []byte { return stampedAt(time.Now(), size) }

// stampedAt returns an argument of the given size that begins with the time t.
func stampedAt(t time.Time, size int) []byte {
	b := make([]byte, size)
	binary.LittleEndian.PutUint64(b, uint64(t.UnixNano()))
	return b
}

// age returns the time since the time at the beginning of an argument.
func age(b []byte) time.Duration {
	if len(b) < stampSize {
		return 0
	}
	return time.Duration(time.Now().UnixNano() - int64(binary.LittleEndian.Uint64(b)))
}
