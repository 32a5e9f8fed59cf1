//go:build unix

package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// The signals go to the group. An error means that it is gone already, which is what the callers check by other means.

func killGroup(pid int)   { _ = syscall.Kill(-pid, syscall.SIGKILL) }
func resumeGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGCONT) }

func terminateGroup(pid int, interrupt bool) {
	if interrupt {
		_ = syscall.Kill(-pid, syscall.SIGINT)
		return
	}
	_ = syscall.Kill(-pid, syscall.SIGTERM)
}

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

// killOrphan ends a process of a group of its own, or one that is about to get it.
func killOrphan(pid int) {
	killGroup(pid)
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// awaitEnd waits until a process is gone, or nobody's business any more but its parent's.
func awaitEnd(pid int) {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); runtime.Gosched() {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.HasPrefix(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " Z") {
			return
		}
	}
}

// childrenOf returns the processes that a process has started and that run. Where there is no /proc it finds none.
func childrenOf(parent int) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	var pids []int
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		var state string
		var ppid int
		_, err = fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &ppid)
		pid, perr := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && perr == nil && ppid == parent && state != "Z" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// asUser returns what to put before a program's name so that it runs as a user, and gives the user the directories. Nothing
// is put before it if this process is not root, which alone may choose.
func asUser(name string, dirs ...string) ([]string, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("%w: root may not run the server, and there is no user for it: %w", ErrMissing, err)
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		return nil, fmt.Errorf("%w: setpriv (Debian: apt-get install util-linux): %w", ErrMissing, err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		if err := os.Chown(dir, uid, gid); err != nil {
			return nil, err
		}
	}
	return []string{setpriv, "--reuid=" + u.Uid, "--regid=" + u.Gid, "--clear-groups"}, nil
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
