//go:build !linux

package suite

import "syscall"

// tied returns nil: a member ends when its standard input ends.
func tied() *syscall.SysProcAttr { return nil }
