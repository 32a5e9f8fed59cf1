package testserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Reaper is the name of the function in which one goroutine per running server process waits. It is
// for goleak.IgnoreAnyFunction.
const Reaper = "github.com/swarmiji/swarmiji/internal/testserver.(*process).reap"

// sandbox is a directory with the processes that work in it. Closing it ends the processes and
// removes the directory.
type sandbox struct {
	dir   string
	guard *exec.Cmd
	leash io.Closer // when it closes, also because this process ends, the guard acts

	closeOnce sync.Once
	closeErr  error
}

// guardScript waits for the end of its input, kills the process groups named in the files of
// $1/pids, and removes $1. If the file $1/quit exists, it sends SIGQUIT first and waits for two
// seconds. It unmounts a file system at $1/disk. It repeats the removal while killed processes
// still write.
const guardScript = `trap '' HUP INT TERM
while read -r _; do :; done
for f in "$1"/pids/*; do
	[ -f "$f" ] || continue
	p=$(cat "$f")
	if [ -f "$1/quit" ]; then
		kill -s QUIT -- "-$p" 2>/dev/null
		for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
			kill -s 0 -- "-$p" 2>/dev/null || break
			sleep 0.1
		done
	fi
	kill -s KILL -- "-$p" 2>/dev/null
done
[ -d "$1/disk" ] && umount -l -- "$1/disk" 2>/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do
	rm -rf -- "$1" 2>/dev/null && break
	sleep 0.1
done`

// recordScript writes its own process id into the file $0 and then becomes the program in its
// arguments. So the guard knows every server from its start.
const recordScript = `echo $$ >"$0" && exec "$@"`

// newSandbox makes a directory and starts the guard process for it.
func newSandbox(pattern string) (*sandbox, error) {
	dir, err := os.MkdirTemp("", pattern)
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(dir, "pids"), 0o700); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	guard := exec.Command("/bin/sh", "-c", guardScript, "guard", dir)
	guard.SysProcAttr = ownGroup() // a signal that kills the test's group must not kill its guard
	leash, err := guard.StdinPipe()
	if err == nil {
		err = guard.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("guard: %w", err), os.RemoveAll(dir))
	}
	return &sandbox{dir: dir, guard: guard, leash: leash}, nil
}

// close kills the processes that still run and removes the directory. It is idempotent and returns
// the same error each time.
func (s *sandbox) close() error {
	s.closeOnce.Do(func() {
		_ = s.leash.Close() // it is closed once, and a pipe has nothing to flush
		s.closeErr = s.guard.Wait()
	})
	return s.closeErr
}

// process is a running program that leads its own process group.
type process struct {
	cmd     *exec.Cmd
	pidFile string
	logFile string
	done    chan struct{} // closed when the process has ended and was waited for
	manners manners
}

// manners describes how a program reacts to signals. The zero value: its children stay in its
// group, and SIGTERM ends it in good order.
type manners struct {
	children  bool // its children have their own groups, so each needs its own signal
	interrupt bool // SIGINT ends it in good order
}

// start runs a program and appends its output to logFile. env is the whole environment. start does
// not wait for the program.
func (s *sandbox) start(name, logFile string, env []string, program string, args ...string) (*process, error) {
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }() // the process has its own handle
	p := &process{pidFile: filepath.Join(s.dir, "pids", name), logFile: logFile, done: make(chan struct{})}
	p.cmd = exec.Command("/bin/sh", append([]string{"-c", recordScript, p.pidFile, program}, args...)...)
	p.cmd.Env, p.cmd.Dir = env, s.dir
	p.cmd.Stdout, p.cmd.Stderr = out, out // a file, so that no goroutine copies
	p.cmd.SysProcAttr = ownGroup()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.reap()
	return p, nil
}

// reap waits for the end of the process, removes its pid file and closes p.done. After the end
// another process may get the same id, so the guard must forget it.
func (p *process) reap() {
	_ = p.cmd.Wait() // the exit status does not matter; done reports the end
	_ = os.Remove(p.pidFile)
	close(p.done)
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill sends SIGKILL to the process group, and to its children's groups, and waits for their end.
// It does nothing if the process has ended.
func (p *process) kill() {
	if p.ended() {
		return
	}
	var children []int
	if p.manners.children {
		pauseGroup(p.cmd.Process.Pid) // so that it starts no more children
		children = childrenOf(p.cmd.Process.Pid)
	}
	for _, pid := range children {
		killOrphan(pid)
	}
	killGroup(p.cmd.Process.Pid)
	<-p.done
	for _, pid := range children {
		awaitEnd(pid)
	}
}

// pause freezes the process and its children. It returns when they no longer run.
func (p *process) pause() {
	pauseGroup(p.cmd.Process.Pid)
	if p.manners.children {
		for _, pid := range childrenOf(p.cmd.Process.Pid) {
			pauseGroup(pid)
		}
	}
}

// resume continues the process and its children after a pause.
func (p *process) resume() {
	if p.manners.children {
		for _, pid := range childrenOf(p.cmd.Process.Pid) {
			resumeGroup(pid)
		}
	}
	resumeGroup(p.cmd.Process.Pid)
}

// terminate asks the process to end in good order and waits for it. If ctx is done first, it kills
// the process. It repeats the signal every second: Redis ignores it while it writes its first
// append-only file.
func (p *process) terminate(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for !p.ended() {
		terminateGroup(p.cmd.Process.Pid, p.manners.interrupt)
		select {
		case <-p.done:
		case <-tick.C:
		case <-ctx.Done():
			p.kill()
			return fmt.Errorf("killed, it did not stop in time: %w", ctx.Err())
		}
	}
	return nil
}

// log returns the last n bytes of the process's output, or all of it with n = 0.
func (p *process) log(n int) string {
	b, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	if n > 0 && len(b) > n {
		b = b[len(b)-n:]
	}
	return string(b)
}

// await calls probe every 50 ms until it returns nil. It returns an error if the process ends or
// ctx is done first.
func (p *process) await(ctx context.Context, probe func(ctx context.Context) error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("it ended: %s\n%s", p.cmd.ProcessState, p.log(4<<10))
		case <-ctx.Done():
			return fmt.Errorf("it did not answer: %w: %w\n%s", ctx.Err(), err, p.log(4<<10))
		case <-tick.C:
		}
	}
}

// environment returns this process's environment without the variables that begin with a prefix in
// drop. The variables in set replace or extend it.
func environment(drop []string, set map[string]string) []string {
	var env []string
next:
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if _, ok := set[name]; ok {
			continue
		}
		for _, prefix := range drop {
			if strings.HasPrefix(name, prefix) {
				continue next
			}
		}
		env = append(env, kv)
	}
	for k, v := range set {
		env = append(env, k+"="+v)
	}
	return env
}

// address returns the loopback address with a port.
func address(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }
