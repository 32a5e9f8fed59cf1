package testserver

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// template is the directory of a new database cluster and the secrets in it. A copy of it takes a
// tenth of the processor time of initdb, and make test starts some 50 servers.
//
// It stays in the user's cache, one for each version of PostgreSQL and for the options of initdb.
// All servers of the user have its password.
type template struct {
	dir                string
	password, verifier string // of pgUser
}

// findTemplate returns the template for a version of initdb. password is "" if it does not exist.
func findTemplate(ctx context.Context, initdb string) (t template, err error) {
	version, err := exec.CommandContext(ctx, initdb, "--version").Output()
	if err != nil {
		return t, fmt.Errorf("initdb --version: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return t, err
	}
	sum := sha256.Sum256([]byte(string(version) + strings.Join(initdbOptions, " ")))
	t.dir = filepath.Join(cache, "swarmiji-testserver", fmt.Sprintf("postgres-%.8x", sum))
	secrets, err := os.ReadFile(filepath.Join(t.dir, "secrets"))
	if errors.Is(err, os.ErrNotExist) {
		return t, nil
	}
	t.password, t.verifier, _ = strings.Cut(string(secrets), "\n")
	return t, err
}

// save makes the template from a cluster that initdb has just created. If another process makes it
// at the same time, save keeps that one. A process never sees an incomplete template.
func (t template) save(ctx context.Context, data string) (err error) {
	if err := os.MkdirAll(filepath.Dir(t.dir), 0o700); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(t.dir), "build-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if err := errors.Join(copyTree(ctx, data, filepath.Join(tmp, "data")),
		os.WriteFile(filepath.Join(tmp, "secrets"), []byte(t.password+"\n"+t.verifier), 0o600)); err != nil {
		return err
	}
	if err := os.Rename(tmp, t.dir); err != nil && !built(t.dir) {
		return err
	}
	return nil
}

// copyTree copies a directory with its owners and permissions.
func copyTree(ctx context.Context, from, to string) error {
	if out, err := exec.CommandContext(ctx, "cp", "-Rp", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w\n%s", from, err, out)
	}
	return nil
}
