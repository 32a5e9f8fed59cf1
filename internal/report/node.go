package report

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/events"
)

const module = "github.com/swarmiji/swarmiji"

// identity returns the fields that are the same in all events about this process. every is the time
// between heartbeats.
func identity(role string, every time.Duration) events.Worker {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	return events.Worker{
		Hostname: host, Role: role, Freq: every,
		Ident: "swarmiji", Version: version(), System: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// version returns this module's version in the running program, or "(devel)" if the program was
// built from a checkout.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path != module {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		if m.Version != "" {
			return m.Version
		}
	}
	return "(devel)"
}

// load returns the one-minute load per processor, at most 1. It returns -1 on systems without
// Linux's /proc/loadavg.
func load() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return -1
	}
	return parseLoad(string(data), runtime.NumCPU())
}

// parseLoad returns the first number of s, the text of /proc/loadavg, divided by the processors and
// at most 1. It returns -1 if it cannot read the number.
func parseLoad(s string, processors int) float64 {
	first, _, _ := strings.Cut(s, " ")
	f, err := strconv.ParseFloat(first, 64)
	if err != nil || !(f >= 0) {
		return -1
	}
	return min(f/float64(processors), 1)
}

// memory returns the used fraction of the machine's memory. It returns -1 on systems without
// Linux's /proc/meminfo.
func memory() float64 {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return -1
	}
	return parseMemory(string(data))
}

// parseMemory returns the used fraction of the memory that s, the text of /proc/meminfo, describes.
// It returns -1 if it cannot read the numbers.
func parseMemory(s string) float64 {
	total, available := -1.0, -1.0
	for line := range strings.Lines(s) {
		name, rest, _ := strings.Cut(line, ":")
		to := &total
		switch name {
		case "MemTotal":
		case "MemAvailable":
			to = &available
		default:
			continue
		}
		if f := strings.Fields(rest); len(f) > 0 {
			if kib, err := strconv.ParseFloat(f[0], 64); err == nil {
				*to = kib
			}
		}
		if total > 0 && available >= 0 {
			return min(max(1-available/total, 0), 1)
		}
	}
	return -1
}
