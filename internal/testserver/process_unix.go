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

// ownGroup makes a process the leader of a new process group.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// The signals go to the group. An error means that the group has ended already, which the callers
// check in other ways.

// killGroup sends SIGKILL to all processes of the group that pid leads.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// resumeGroup sends SIGCONT to all processes of the group that pid leads.
func resumeGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGCONT) }

// terminateGroup sends SIGTERM to all processes of the group that pid leads, or SIGINT if interrupt
// is true.
func terminateGroup(pid int, interrupt bool) {
	if interrupt {
		_ = syscall.Kill(-pid, syscall.SIGINT)
		return
	}
	_ = syscall.Kill(-pid, syscall.SIGTERM)
}

// pauseGroup sends SIGSTOP to the group and returns when its leader no longer runs. A thread on
// another processor continues until the signal arrives. It waits at most 5 seconds. Without /proc
// it returns at once.
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
			continue // the thread has ended
		}
		// The format is "pid (name) state ...", and the name may contain any character.
		_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ")
		if !strings.HasPrefix(rest, "T") && !strings.HasPrefix(rest, "Z") {
			return false
		}
	}
	return true
}

// killOrphan kills a process that leads its own group or is about to do so.
func killOrphan(pid int) {
	killGroup(pid)
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// awaitEnd waits at most 5 seconds until a process has ended. A zombie counts as ended.
func awaitEnd(pid int) {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); runtime.Gosched() {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.HasPrefix(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " Z") {
			return
		}
	}
}

// childrenOf returns the running child processes of a process. Without /proc it returns an empty
// list.
func childrenOf(parent int) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	var pids []int
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
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

// asUser returns the words to put before a command so that it runs as the named user. It also makes
// that user the owner of the directories. If this process is not root, it returns nil and changes
// nothing: only root can choose the user. The error wraps ErrMissing if the user or setpriv does
// not exist.
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

// reserve takes a lock on the file for the rest of the process's life and reports success. It fails
// if any process holds the lock, also this one.
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

// lockFile waits until no other process holds a lock on the file, then takes it. The lock ends with
// a call of unlock or with the process.
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
			return func() { _ = f.Close() }, nil // closing the file unlocks it
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
