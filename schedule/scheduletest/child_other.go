//go:build !linux

package scheduletest

import "syscall"

// tied adds nothing here: a child ends with its standard input.
func tied() *syscall.SysProcAttr { return nil }
