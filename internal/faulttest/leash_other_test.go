//go:build !linux

package faulttest

import "syscall"

// leash has nothing to offer here: processes end with their test, unless the tests are killed.
func leash() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
