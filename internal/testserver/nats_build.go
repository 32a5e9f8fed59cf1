package testserver

import (
	"context"
	"crypto/sha256"
	_ "embed" // the source of natsd, whose hash is part of the built program's name
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const (
	natsModule  = "github.com/nats-io/nats-server/v2"
	natsPackage = "github.com/swarmiji/swarmiji/internal/testserver/natsd"
)

//go:embed natsd/main.go
var natsSource string

// NATSProgram returns the path of the NATS server program.
//
// The first call on a machine builds it, which takes some 40 seconds if nothing of it was compiled
// before. The program stays in the user's cache, one for each version of the server, of Go and of
// natsd. Processes that need it at the same time build it once. The error wraps [ErrMissing] if the
// go command is not installed.
func NATSProgram(ctx context.Context) (string, error) {
	shared.natsd.mu.Lock()
	defer shared.natsd.mu.Unlock()
	if shared.natsd.path == "" {
		path, err := findNATS(ctx)
		if err != nil {
			return "", fmt.Errorf("nats server: %w", err)
		}
		shared.natsd.path = path
	}
	return shared.natsd.path, nil
}

// findNATS returns the path of the server program in the user's cache. It builds the program if it
// is missing, and waits for another process that builds it. The error wraps ErrMissing if servers
// cannot be started or built on this machine.
func findNATS(ctx context.Context) (string, error) {
	if !supported {
		return "", fmt.Errorf("%w: servers are started on Unix only", ErrMissing)
	}
	if _, err := exec.LookPath("go"); err != nil {
		return "", fmt.Errorf("%w: the go command, to build the NATS server: %w", ErrMissing, err)
	}
	version, err := goCommand(ctx, "list", "-m", "-f", "{{.Version}}", natsModule)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "swarmiji-testserver")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	program := filepath.Join(dir, fmt.Sprintf("natsd-%s-%s-%.4x",
		version, strings.ReplaceAll(runtime.Version(), " ", "-"), sha256.Sum256([]byte(natsSource))))
	if built(program) {
		return program, nil
	}
	unlock, err := lockFile(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if built(program) { // another process built it during the wait for the lock
		return program, nil
	}
	return program, buildNATS(ctx, program)
}

// built reports whether the program exists.
func built(program string) bool {
	_, err := os.Stat(program)
	return err == nil
}

// buildNATS builds the program under another name and then renames it, so that no process starts an
// incomplete program.
func buildNATS(ctx context.Context, program string) (err error) {
	tmp, err := os.MkdirTemp(filepath.Dir(program), "build-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	out := filepath.Join(tmp, "natsd")
	// without the race detector: its server takes three times the processor time
	if _, err := goCommand(ctx, "build", "-buildvcs=false", "-ldflags=-s -w", "-o", out, natsPackage); err != nil {
		return err
	}
	return os.Rename(out, program)
}

// goCommand runs the go command within the module and returns its output.
func goCommand(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = environment(nil, map[string]string{"GOWORK": "off"})
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		// otherwise the process runs inside the module, as a test does
		if dir := filepath.Dir(file); built(dir) {
			cmd.Dir = dir
		}
	}
	cmd.WaitDelay = time.Second
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
