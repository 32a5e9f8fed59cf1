package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Disk is a file system of a fixed size in memory, which a test can fill.
type Disk struct {
	box *sandbox
	dir string
}

// StartDisk mounts a file system of the given size in bytes. The error wraps [ErrMissing] if this
// process may not mount one.
func StartDisk(ctx context.Context, size int) (*Disk, error) {
	box, err := newSandbox("swarmiji-disk-")
	if err != nil {
		return nil, err
	}
	d := &Disk{box: box, dir: filepath.Join(box.dir, "disk")}
	if err := d.mount(ctx, size); err != nil {
		return nil, errors.Join(err, box.close())
	}
	return d, nil
}

// mount makes the directory and mounts a file system of size bytes in memory on it. The error wraps
// ErrMissing if this process may not mount one.
func (d *Disk) mount(ctx context.Context, size int) error {
	if err := os.Chmod(d.box.dir, 0o711); err != nil {
		return err
	}
	if err := os.Mkdir(d.dir, 0o711); err != nil {
		return err
	}
	mount := exec.CommandContext(ctx, "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d,mode=711", size), "tmpfs", d.dir)
	if out, err := mount.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: the right to mount a file system: %w: %s", ErrMissing, err, out)
	}
	return nil
}

// Dir returns the directory of the file system.
func (d *Disk) Dir() string { return d.dir }

// Fill writes a file that takes all free space.
func (d *Disk) Fill() error {
	f, err := os.OpenFile(d.ballast(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	part := make([]byte, 1<<20)
	for len(part) > 0 {
		if _, err = f.Write(part); err != nil {
			part = part[:len(part)/2]
		}
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// Free removes the file of Fill.
func (d *Disk) Free() error { return os.Remove(d.ballast()) }

// ballast returns the path of the file that Fill writes.
func (d *Disk) ballast() string { return filepath.Join(d.dir, "ballast") }

// Close unmounts the file system. It is idempotent.
func (d *Disk) Close() error { return d.box.close() }

// OwnDisk mounts a file system of the given size for one test and unmounts it at the end of the
// test. Without the right to mount one the test is skipped, see the package comment.
func OwnDisk(tb testing.TB, size int) *Disk {
	tb.Helper()
	return own(tb, startTime, func(ctx context.Context) (*Disk, error) { return StartDisk(ctx, size) })
}
