//go:build !linux

package suite

import "syscall"

// tied adds nothing here: a member ends with its standard input.
func tied() *syscall.SysProcAttr { return nil }
