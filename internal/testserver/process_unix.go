//go:build unix

package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// The signals go to the group. An error means that it is gone already, which is what the callers check by other means.

func killGroup(pid int)      { _ = syscall.Kill(-pid, syscall.SIGKILL) }
func terminateGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGTERM) }
func resumeGroup(pid int)    { _ = syscall.Kill(-pid, syscall.SIGCONT) }

// pauseGroup returns when the process stands still: the signal takes its time, and until then a thread on another
// processor goes on. Where there is no /proc it returns at once.
func pauseGroup(pid int) {
	_ = syscall.Kill(-pid, syscall.SIGSTOP)
	for end := time.Now().Add(5 * time.Second); !stopped(pid) && time.Now().Before(end); {
		runtime.Gosched()
	}
}

// stopped reports whether no thread of a process runs.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, file := range threads {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// "pid (name) state ...", where the name may hold anything.
		_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ")
		if !strings.HasPrefix(rest, "T") && !strings.HasPrefix(rest, "Z") {
			return false
		}
	}
	return true
}

const supported = true

// reserve takes a lock on the file for the rest of the process's life, unless somebody has it, this process included.
func reserve(name string) bool {
	fd, err := syscall.Open(name, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return false
	}
	if syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		_ = syscall.Close(fd)
		return false
	}
	return true // the open descriptor is the reservation
}

// lockFile waits until no other process holds a lock on the file, and holds it until unlock, or the end of the process.
func lockFile(ctx context.Context, name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // which unlocks it
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), f.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock %s: %w", name, ctx.Err()), f.Close())
		}
	}
}
